// A shared library opened at run time, so that optional libraries are never linked. Immutable once open: any thread.
#pragma once
#include <initializer_list>
#include <string>

#include "shardcomm/status.h"

namespace shardcomm {

class DynamicLibrary {
 public:
  // The first of `names` that loads ("libnccl.so.2"). kUnavailable with every name's reason where none does.
  static Result<DynamicLibrary> open(std::initializer_list<const char*> names);
  DynamicLibrary(DynamicLibrary&& other) noexcept;
  DynamicLibrary& operator=(DynamicLibrary&& other) noexcept;
  ~DynamicLibrary();  // closes: functions loaded from it must not be called any more

  const std::string& name() const noexcept { return name_; }

  // target = the function called `symbol`; kUnavailable, naming library and symbol, where it lacks that.
  template <class Function>
  Status load(const char* symbol, Function*& target) const {
    SHARDCOMM_TRY_ASSIGN(void* found, address(symbol));
    target = reinterpret_cast<Function*>(found);
    return {};
  }

 private:
  DynamicLibrary(void* handle, std::string name) : handle_(handle), name_(std::move(name)) {}
  Result<void*> address(const char* symbol) const;
  void* handle_;
  std::string name_;
};

}  // namespace shardcomm
