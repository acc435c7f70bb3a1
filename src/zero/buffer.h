// Ordinary memory of one rank: page-aligned, zero-filled, returned to the system when its owner goes.
#pragma once
#include <cstddef>
#include <string_view>

#include "shardcomm/status.h"

namespace shardcomm::zero {

class Buffer {
 public:
  Buffer() noexcept = default;
  // `what` is named in the error. 0 bytes: an empty buffer.
  static Result<Buffer> create(size_t bytes, std::string_view what);
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer();

  std::byte* data() const noexcept { return data_; }
  float* floats() const noexcept { return reinterpret_cast<float*>(data_); }
  size_t size_bytes() const noexcept { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace shardcomm::zero
