// Memory of a bench: buffers between guards, and pages outside of the library for the machine's limits.
#pragma once
#include <cstddef>
#include <memory>
#include <optional>
#include <string_view>

#include "shardcomm/communicator.h"
#include "shardcomm/pool.h"
#include "tools/bench/layout.h"

namespace shardcomm::tools {

// A buffer between guards, as a window, in a pool of its own or in ordinary memory.
class Buffer {
 public:
  // Begins `offset_bytes` after a page. Collective for windows.
  static Result<Buffer> make(Communicator& comm, BenchMemory memory, size_t bytes, size_t offset_bytes,
                             std::string_view label);

  std::byte* data() const { return base_ + guard_bytes_; }
  void poison();
  // Bytes of the guards that were written, and of the buffer from `used_bytes` on.
  size_t count_stray(size_t used_bytes) const;

 private:
  struct Free {
    void operator()(std::byte* memory) const;
  };
  std::optional<Window> window_;
  std::optional<MemoryPool> pool_;
  std::unique_ptr<std::byte[], Free> memory_;
  std::byte* base_ = nullptr;
  size_t guard_bytes_ = 0;  // before the buffer; a page after it
  size_t bytes_ = 0;
};

// Zero-filled pages, given back when it ends. Movable.
class Pages {
 public:
  // Of this process alone. `huge` asks for huge pages as windows do.
  static Result<Pages> make(size_t bytes, bool huge);
  // One memory that every rank maps; collective, and fails on all ranks alike where one cannot.
  static Result<Pages> make_shared(Communicator& comm, size_t bytes, bool huge);

  Pages(Pages&& other) noexcept;
  Pages& operator=(Pages&& other) noexcept;
  ~Pages();
  std::byte* data() const { return data_; }

 private:
  Pages(std::byte* reserved, size_t bytes) : reserved_(reserved), data_(reserved), bytes_(bytes) {}
  static Result<Pages> map(int fd, size_t bytes, bool huge);

  std::byte* reserved_;  // bytes_ of it
  std::byte* data_;
  size_t bytes_;
};

size_t available_memory_bytes();  // as the kernel estimates it; SIZE_MAX where it does not

}  // namespace shardcomm::tools
