// Part of the door memory/memory.h. A segment is a memfd, which a peer opens through /proc/<pid>/fd and which the
// kernel frees with its last user, however that one ended.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <type_traits>

#include "memory/process.h"
#include "shardcomm/status.h"

namespace shardcomm {

struct Allocation;
// Tells peers where to find a segment.
struct SegmentCard {
  int32_t pid = 0;
  int32_t fd = -1;  // a number of process pid
  uint64_t size_bytes = 0;
  Token process;
  Token segment;
  uint64_t base_address = 0;  // in process pid, for messages
};
static_assert(std::is_trivially_copyable_v<SegmentCard> && sizeof(SegmentCard) == 56);

class Mapping;  // mapped pages, unmapped with the last reference

// Owns shared memory. The memory stays until the owner and every view of it, here and in other processes, are gone.
// One thread at a time.
class Segment {
 public:
  // Zero-filled, page-aligned memory, shared and sealed against resizing. `label` is the noun of messages, "window
  // 'x'": kOutOfMemory "window 'x' needs 100 GiB, 22.4 GiB available", found out before any page is touched. Pages are
  // taken when first written. 0 bytes are legal.
  static Result<Segment> create(size_t bytes, std::string_view label);
  Segment(Segment&& other) noexcept;
  Segment& operator=(Segment&& other) noexcept;
  ~Segment();

  std::byte* data() const noexcept;  // never null
  size_t size_bytes() const noexcept { return card_.size_bytes; }
  const SegmentCard& card() const noexcept { return card_; }
  Allocation allocation() const noexcept;  // allocation.h
  int fd() const noexcept { return fd_; }  // -1 once closed
  // Once every peer has mapped it; other processes cannot map it any more.
  void close_fd() noexcept;
  // Frees the pages, also those that peers have mapped: all of them read zeros from now on. The fd is open. Where the
  // system refuses it, they are freed with the last mapping.
  void free_pages() noexcept;

 private:
  Segment(std::shared_ptr<Mapping> mapping, int fd, const SegmentCard& card);
  std::shared_ptr<Mapping> mapping_;
  int fd_ = -1;
  SegmentCard card_;
};

// Somebody's segment, mapped here; keeps its memory alive. Copies share it. Const members from any thread.
class SegmentView {
 public:
  std::byte* data() const noexcept { return data_; }  // never null
  size_t size_bytes() const noexcept { return size_bytes_; }

 private:
  friend Result<SegmentView> map_segment(const SegmentCard& card);
  SegmentView(std::shared_ptr<Mapping> mapping, size_t bytes);
  std::shared_ptr<Mapping> mapping_;
  std::byte* data_;
  size_t size_bytes_;
};

// Within the owner's process: the owner's own addresses. Elsewhere: a mapping of its own. kUnavailable, with the
// reason, where the card's process, file or token is not to be found from here: another node or container, no
// permission, an owner that has ended or has closed its fd. Any thread.
Result<SegmentView> map_segment(const SegmentCard& card);

}  // namespace shardcomm
