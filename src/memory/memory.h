// The door of src/memory: where bytes live. Segments are memory that processes of one node share without leaving a name
// anywhere: a memfd, which a peer opens through /proc/<pid>/fd and which the kernel frees with its last user, however
// that one ended. Ordinary memory of a peer can be read with cross-memory attach, where the system permits.
//
// Cards are what a rank tells its peers: plain values without padding, to be sent as bytes. "Same node" is never
// assumed from names or numbers, which containers may share or hide: it is tested by finding the card's random token.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "shardcomm/status.h"

namespace shardcomm {

// 128 random bits.
struct Token {
  std::array<uint64_t, 2> words{};
  bool operator==(const Token&) const = default;
};

// Names this process; a forked child has another. Any thread.
Token process_token();

// Where to find a segment.
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
  int fd() const noexcept { return fd_; }  // -1 once closed
  // Once every peer has mapped it; other processes cannot map it any more.
  void close_fd() noexcept;

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

// Segments side by side, page by page: part i of its addresses is the memory of segment i itself. For reading: a write
// is SIGSEGV. Keeps the memory alive. Const members from any thread.
class Mosaic {
 public:
  // All of one size, a multiple of page_bytes().
  static Result<Mosaic> create(std::span<const SegmentView> parts);
  Mosaic(Mosaic&& other) noexcept
      : base_(std::exchange(other.base_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Mosaic& operator=(Mosaic&& other) noexcept;
  ~Mosaic();
  const std::byte* data() const noexcept { return base_; }

 private:
  Mosaic(std::byte* base, size_t bytes) noexcept : base_(base), bytes_(bytes) {}
  std::byte* base_;
  size_t bytes_;
};

size_t page_bytes() noexcept;

// Where a process can be probed for cross-memory attach.
struct AttachCard {
  int32_t pid = 0;
  int32_t reserved = 0;
  uint64_t token_address = 0;  // of process_token() in that process
  Token process;
};
static_assert(std::is_trivially_copyable_v<AttachCard> && sizeof(AttachCard) == 32);

AttachCard attach_card();

// Whether read_peer works with that process: by reading its token. kUnavailable with the reason where it does not
// (permission, Yama, seccomp, another pid namespace, an ended process), kUnsupported on a kernel without the call.
Status probe_peer_read(const AttachCard& peer);

// target[0, bytes) = memory of process pid at remote_address: one copy, made by the calling thread. kPeerLost where the
// process has ended; on errors part of target may have been written. Any thread.
Status read_peer(int32_t pid, void* target, uint64_t remote_address, size_t bytes);

// GB/s of one rank that reads a peer's ordinary memory: by cross-memory attach (0 where it does not work at all), or
// through a staging ring, both copies together. Measured on this process's own memory, once, in about half a
// millisecond.
struct AccessSpeed {
  double attach_gbs = 0;
  double staged_gbs = 0;
};
AccessSpeed access_speed();

// What this process may still take without swapping: the least of MemAvailable, the room in each control group above
// us, and RLIMIT_AS. SIZE_MAX where none is known. `root` stands before /proc and /sys, for tests.
size_t memory_available_bytes(const std::string& root = {});

// kOutOfMemory "<label> needs …, … available" if that is less than `bytes`. Ranks that allocate at the same moment do
// not see each other's untouched pages: who knows their sum asks for the sum.
Status check_memory_for(size_t bytes, std::string_view label);

}  // namespace shardcomm
