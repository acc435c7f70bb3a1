// Plain values as the bytes that ranks send each other, and back. Both ends run the same build, so sizes agree or the
// peer sent something else.
#pragma once
#include <cstring>
#include <optional>
#include <string_view>
#include <type_traits>

namespace shardcomm {

// Views `value`, which must outlive the result.
template <class T>
requires std::is_trivially_copyable_v<T> std::string_view as_bytes(const T& value)
noexcept { return {reinterpret_cast<const char*>(&value), sizeof value}; }

// Nothing where `bytes` has another size than a T.
template <class T>
requires std::is_trivially_copyable_v<T> std::optional<T> from_bytes(std::string_view bytes)
noexcept {
  if (bytes.size() != sizeof(T)) return std::nullopt;
  T value;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

}  // namespace shardcomm
