#pragma once

#include <sys/wait.h>
#include <unistd.h>

namespace hindcast::tests {

/// What `body` returns, from a child process: its exit status, or minus the signal that ended it.
template <class Body>
int in_child(const Body& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child) return -1000;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

}  // namespace hindcast::tests
