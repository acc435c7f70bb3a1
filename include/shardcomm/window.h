// A Window is memory that every rank of one communicator has registered together, so that (rank, offset) names the
// same place on all of them. Peers read an allocated window directly: a collective on it copies each byte once.
#pragma once
#include <memory>
#include <string_view>

#include "shardcomm/status.h"
#include "shardcomm/types.h"

namespace shardcomm {

// Made by Communicator::allocate_window or register_window (collective). Destroying it is local, never waits for a
// peer, and must not happen while operations on it are in flight. Once one rank has destroyed its part, no rank may use
// its own part as the input of a collective. It may outlive the communicator.
class SHARDCOMM_EXPORT Window {
 public:
  Window(Window&&) noexcept;
  Window& operator=(Window&&) noexcept;
  ~Window();
  std::byte* data() const noexcept;  // this rank's part; page-aligned when allocated, zero-filled
  size_t size_bytes() const noexcept;
  std::string_view label() const noexcept;
  bool owns_memory() const noexcept;  // allocate_window: true; register_window: false
  // Tells whether register_window made the memory known to a transport (pinned it, say). False where the transport
  // needs nothing of the kind, as shm: threads of one process read the memory in place, other processes by cross-memory
  // attach or through the staging ring, exactly as if it had not been registered. Allocated windows: false.
  bool is_enrolled() const noexcept;

  struct Impl;

 private:
  friend class Communicator;
  explicit Window(std::unique_ptr<Impl>) noexcept;
  std::unique_ptr<Impl> impl_;
};

// A MosaicWindow shows the parts of all ranks side by side, as an array whose pages are the ranks' own memory: what a
// gather would have copied is there already. all_gather(mosaic) only waits until every rank has come to it.
//
//   write shard()                     each rank its own part
//   all_gather(mosaic)                from here on, and no sooner, all() shows what all ranks wrote before it
//   read all()
//   barrier, or any other operation   from here on all ranks have read, and shard() may be written again
//
// Ranks of one node only. Made by Communicator::allocate_mosaic (collective); destroyed as a Window is.
class SHARDCOMM_EXPORT MosaicWindow {
 public:
  MosaicWindow(MosaicWindow&&) noexcept;
  MosaicWindow& operator=(MosaicWindow&&) noexcept;
  ~MosaicWindow();
  std::byte* shard() const noexcept;      // this rank's part, zero-filled; peers read it as a window's
  const std::byte* all() const noexcept;  // [size, shard_bytes]; a write is SIGSEGV
  size_t shard_bytes() const noexcept;
  std::string_view label() const noexcept;

  static size_t granularity_bytes() noexcept;  // shard_bytes is a multiple of it: a page

  struct Impl;

 private:
  friend class Communicator;
  explicit MosaicWindow(std::unique_ptr<Impl>) noexcept;
  std::unique_ptr<Impl> impl_;
};

}  // namespace shardcomm
