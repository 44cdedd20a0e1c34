#pragma once
// Runs this test program again, as a child that executes one disabled test.

#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace hindcast::tests {

class ChildProcess {
 public:
  /// Starts the test `name` with `settings` added to the environment.
  ChildProcess(const std::string& name, const std::map<std::string, std::string>& settings) {
    std::vector<std::string> arguments{"/proc/self/exe", "--gtest_filter=" + name, "--gtest_also_run_disabled_tests", "--gtest_brief=1"};
    std::vector<std::string> environment;
    for (char** entry = environ; *entry != nullptr; ++entry) {
      environment.emplace_back(*entry);
    }
    for (const auto& [key, value] : settings) {
      environment.push_back(key + "=" + value);
    }
    const auto error = posix_spawn(&pid_, arguments[0].c_str(), nullptr, nullptr, pointers(arguments).data(), pointers(environment).data());
    if (error != 0) throw std::runtime_error("cannot start a child process: error " + std::to_string(error));
  }

  ~ChildProcess() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
  }
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  /// Its exit status, or -1 if it takes longer than `timeout` or dies of a signal.
  int wait(std::chrono::seconds timeout) {
    const auto end = std::chrono::steady_clock::now() + timeout;
    int status = 0;
    while (waitpid(pid_, &status, WNOHANG) == 0) {
      if (std::chrono::steady_clock::now() > end) return -1;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  static std::vector<char*> pointers(std::vector<std::string>& strings) {
    std::vector<char*> result;
    for (auto& string : strings) {
      result.push_back(string.data());
    }
    result.push_back(nullptr);
    return result;
  }

  pid_t pid_ = -1;
};

}  // namespace hindcast::tests
