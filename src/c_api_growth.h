// How structs of the C ABI grow. A caller may be compiled against an older or a newer c.h than the library: what either
// side says of a struct is its struct_size, and only bytes that both know are read or written.
//
//   caller's struct      is
//   smaller              taken over the defaults: members that the caller does not know have their default values
//   larger               taken if every byte that the library does not know is zero, else kUnsupported, because a
//   member
//                        that this library cannot honour is set (as copy_struct_from_user() of Linux does)
//   smaller than the
//   first version's      kInvalidArgument with a hint at the _init function: struct_size was not set
//
// A new growable struct gets SHARDCOMM_GROWS below, once, in the file that reads it.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>
#include <type_traits>

#include "shardcomm/status.h"

namespace shardcomm::c_api {

// A struct of the C ABI that may grow; specialized by SHARDCOMM_GROWS. `first_bytes` is its sizeof in the release that
// brought it, `hint` what an error text advises.
template <class T>
struct Growth {};

template <class T>
concept Growable = std::is_trivially_copyable_v<T> && requires {
  Growth<T>::first_bytes;
};

// Larger structs are not believed: struct_size is then taken for memory that was never initialized.
inline constexpr size_t kLargestStructBytes = 4096;

namespace growth {

// Refuses sizes that no release of this library has had, nor a later one can have.
Status check_bytes(size_t bytes, size_t first_bytes, size_t align, const char* hint, const char* what);
// kUnsupported unless bytes [known, bytes) of `given` are zero.
Status check_tail(const void* given, size_t known, size_t bytes, const char* what);

}  // namespace growth

// The struct at `given`, of which the caller's version has `bytes`, over `defaults`. `what` names it in errors. The
// struct_size of the result, where there is one, is the library's own.
template <Growable T>
Result<T> read_sized(const void* given, size_t bytes, const T& defaults, const char* what) {
  SHARDCOMM_TRY(growth::check_bytes(bytes, Growth<T>::first_bytes, alignof(T), Growth<T>::hint, what));
  if (bytes > sizeof(T)) SHARDCOMM_TRY(growth::check_tail(given, sizeof(T), bytes, what));
  T read = defaults;
  std::memcpy(&read, given, std::min(bytes, sizeof(T)));
  if constexpr (requires { read.struct_size; }) read.struct_size = sizeof(T);
  return read;
}

// The same for a struct that begins with its own size.
template <Growable T>
Result<T> read_growing(const T* given, const T& defaults, const char* what) {
  size_t bytes = 0;
  std::memcpy(&bytes, given, sizeof bytes);
  return read_sized<T>(given, bytes, defaults, what);
}

// Calls visit(element, index) for each struct of an array that is stepped by the elements' own sizes, which may differ.
template <Growable T, class Visit>
Status for_each_growing(const T* elements, size_t count, const T& defaults, const char* what, Visit&& visit) {
  const auto* at = reinterpret_cast<const std::byte*>(elements);
  for (size_t i = 0; i < count; ++i) {
    size_t bytes = 0;
    std::memcpy(&bytes, at, sizeof bytes);
    const Result<T> element = read_sized<T>(at, bytes, defaults, what);
    if (!element.ok()) return element.status().context("reading " + std::string(what) + " " + std::to_string(i));
    SHARDCOMM_TRY(visit(element.value(), i));
    at += bytes;
  }
  return {};
}

// Writes as much of `value` as the caller's struct has, and zeros in what the library does not know. out->struct_size
// says how large it is, and stays.
template <Growable T>
Status write_growing(T value, T* out, const char* what) {
  size_t bytes = 0;
  std::memcpy(&bytes, out, sizeof bytes);
  SHARDCOMM_TRY(growth::check_bytes(bytes, Growth<T>::first_bytes, alignof(T), Growth<T>::hint, what));
  value.struct_size = bytes;
  std::memset(static_cast<void*>(out), 0, bytes);
  std::memcpy(static_cast<void*>(out), &value, std::min(bytes, sizeof(T)));
  return {};
}

// The sized form of an _init function: the defaults, in no more than `bytes`, which becomes struct_size.
template <Growable T>
void init_sized(T defaults, void* out, size_t bytes) {
  if (out == nullptr || bytes < sizeof(size_t)) return;
  defaults.struct_size = bytes;
  std::memset(out, 0, bytes);
  std::memcpy(out, &defaults, std::min(bytes, sizeof(T)));
}

// The unsized form, for callers that were compiled when it was the only one.
template <Growable T>
void init_first(const T& defaults, T* out) {
  init_sized(defaults, out, Growth<T>::first_bytes);
}

}  // namespace shardcomm::c_api

// Declares that `type` grows, at namespace scope outside all namespaces. `first_last` is the last member that it had in
// the release that brought it, `last` the one it has now, `init` the function that fills in its defaults ("set
// struct_size" is advised where it is empty). A struct ends without padding, because members that are added later would
// lie where older callers leave bytes undefined: append an int32_t reserved member instead. The first version alone may
// have padding, which is then named by a member that is never read.
#define SHARDCOMM_GROWS(type, first_last, last, init)                                                       \
  template <>                                                                                               \
  struct shardcomm::c_api::Growth<type> {                                                                   \
    static constexpr size_t kEnd = offsetof(type, first_last) + sizeof(type::first_last);                   \
    static constexpr size_t first_bytes = (kEnd + alignof(type) - 1) / alignof(type) * alignof(type);       \
    static constexpr const char* hint = init;                                                               \
    static_assert(first_bytes == sizeof(type) || offsetof(type, last) + sizeof(type::last) == sizeof(type), \
                  #type " ends with padding");                                                              \
  }
