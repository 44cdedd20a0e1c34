#include "capture/recorder/storage_offset.h"

#include "capture/recorder/recorder.h"

#include <c10/core/SymNodeImpl.h>

#include <string>

namespace hindcast::capture {
namespace {

class OffsetWhenRead final : public c10::SymNodeImpl {
 public:
  explicit OffsetWhenRead(int64_t offset) : offset_(offset) {}

  bool is_int() override { return true; }
  bool is_bool() override { return false; }
  bool is_float() override { return false; }
  bool is_symbolic() override { return true; }
  bool has_hint() override { return true; }
  std::string str() override { return "storage offset " + std::to_string(offset_); }
  c10::SymNode clone() override { return c10::make_intrusive<OffsetWhenRead>(offset_); }
  c10::SymNode wrap_int(int64_t value) override { return c10::make_intrusive<OffsetWhenRead>(value); }

  // Arithmetic on SymInts calls one of these first, and continues with plain numbers.
  std::optional<int64_t> maybe_as_int() override { return read(); }
  std::optional<int64_t> constant_int() override { return read(); }
  int64_t guard_int(const char*, int64_t) override { return read(); }
  int64_t int_() override { return read(); }

 private:
  int64_t read() const {
    Recorder* const recorder = Recorder::current();
    if (recorder != nullptr && !recorder->is_looked_at()) recorder->refuse(kAsksForAnOffset);
    return offset_;
  }

  const int64_t offset_;
};

}  // namespace

c10::SymInt storage_offset_when_read(int64_t offset) { return c10::SymInt(c10::SymNode(c10::make_intrusive<OffsetWhenRead>(offset))); }

}  // namespace hindcast::capture
