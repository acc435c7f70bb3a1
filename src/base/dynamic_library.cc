// dlopen as an object.
#include "base/dynamic_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <utility>

namespace shardcomm {

Result<DynamicLibrary> DynamicLibrary::open(std::initializer_list<const char*> names) {
  std::string reasons;
  for (const char* name : names) {
    if (void* handle = dlopen(name, RTLD_NOW | RTLD_LOCAL)) return DynamicLibrary(handle, name);
    const char* reason = dlerror();
    if (!reasons.empty()) reasons += "; ";
    reasons += reason != nullptr ? reason : name;
  }
  return Status(Code::kUnavailable, reasons);
}

DynamicLibrary::DynamicLibrary(DynamicLibrary&& other) noexcept
    : handle_(std::exchange(other.handle_, nullptr)), name_(std::move(other.name_)) {}

DynamicLibrary& DynamicLibrary::operator=(DynamicLibrary&& other) noexcept {
  std::swap(handle_, other.handle_);
  std::swap(name_, other.name_);
  return *this;
}

DynamicLibrary::~DynamicLibrary() {
  if (handle_ != nullptr) dlclose(handle_);
}

Result<void*> DynamicLibrary::address(const char* symbol) const {
  if (void* found = dlsym(handle_, symbol)) return found;
  return Status(Code::kUnavailable, fmt::format("{} has no symbol {}", name_, symbol));
}

}  // namespace shardcomm
