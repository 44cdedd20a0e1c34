#include "tests/cuda_emulator/runtime/fibre.h"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <boost/context/detail/fcontext.hpp>
#include <new>

namespace hindcast::tests::cuda {

namespace context = boost::context::detail;

/// boost::context::fiber would unwind an unfinished fibre, through a kernel; these two functions only switch.
struct Fibre::Jump {
  static void run(context::transfer_t from) {
    auto& fibre = *static_cast<Fibre*>(from.data);
    fibre.back_ = from.fctx;
    fibre.body_(fibre.argument_);
    fibre.pause();
  }
};

Fibre::Fibre() {
  // An inaccessible page guards the end of the stack.
  const uint64_t guard = sysconf(_SC_PAGESIZE);
  mapping_ = mmap(nullptr, guard + kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping_ == MAP_FAILED) throw std::bad_alloc();
  mprotect(mapping_, guard, PROT_NONE);
  stack_ = reinterpret_cast<uint64_t>(mapping_) + guard;
  // Stacks at the same offset within a page would compete for the same few cache lines.
  static std::atomic<uint64_t> fibres = 0;
  offset_ = fibres++ % 32 * 128;
}

Fibre::~Fibre() { munmap(mapping_, stack_ - reinterpret_cast<uint64_t>(mapping_) + kStack); }

void Fibre::start(void (*body)(void*), void* argument) {
  body_ = body;
  argument_ = argument;
  own_ = context::make_fcontext(reinterpret_cast<void*>(stack_ + kStack - offset_), kStack - offset_, &Jump::run);
}

void Fibre::resume() { own_ = context::jump_fcontext(own_, this).fctx; }

void Fibre::pause() { back_ = context::jump_fcontext(back_, nullptr).fctx; }

}  // namespace hindcast::tests::cuda
