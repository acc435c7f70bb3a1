// Every collective, with every dtype and op, in one communicator: what the matrix and the sweep run for each number of
// ranks, kind of rank and kind of memory.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shardcomm/shardcomm.h"
#include "tests/support/rank_group.h"
#include "tests/support/reference.h"

namespace shardcomm::testing {

// Where the buffers of a rank lie, and how peers get at them.
struct Memory {
  std::string_view name;
  std::string_view options;  // of the communicator
  bool even_ranks_use_window;
  bool odd_ranks_use_window;
  bool window_is_pool = false;  // a block of a pool, at another offset on every rank, in its place
};
inline constexpr Memory kWindowMemory{"window", "", true, true};
inline constexpr Memory kAttachedMemory{"attached", "memory_access=attach", false, false};
inline constexpr Memory kAttachedGathers{"attached_gathers", "memory_access=attach_gathers", false, false};
inline constexpr Memory kThreeCopyThreads{"three_copy_threads", "copy_threads=3", true, true};
inline constexpr Memory kAttachedByThree{"attached_by_three", "copy_threads=3,memory_access=attach", false, false};
inline constexpr Memory kSmallPieces{"small_pieces", "memory_access=attach,chunk_bytes=4160", false, false};
inline constexpr Memory kStagedMemory{"staged", "memory_access=staging", false, false};
inline constexpr Memory kSmallRing{"small_ring", "memory_access=staging,staging_bytes=16384", false, false};
inline constexpr Memory kPoolMemory{"pool", "", true, true, true};
inline constexpr Memory kPoolAndStaged{"pool_and_staged", "memory_access=staging", false, true, true};
inline constexpr Memory kPoolAndAttached{"pool_and_attached", "memory_access=attach", true, false, true};
inline constexpr Memory kMixedMemory{"mixed", "memory_access=staging,staging_bytes=40000", true, false};
inline constexpr Memory kMixedAttached{"mixed_attached", "memory_access=attach", false, true};

// A stretch of memory from which buffers are cut, each between guard bytes.
class Arena {
 public:
  static constexpr size_t kGuardBytes = 48;
  static constexpr std::byte kPoison{0xa5};

  Arena(std::byte* base, size_t bytes) : base_(base), bytes_(bytes) {}
  void reset() noexcept { used_ = 0; }
  // Poisoned, `offset_bytes` beyond a multiple of 64. Throws when the arena is too small.
  std::byte* place(size_t bytes, size_t offset_bytes);
  // Whether the guards on both sides of a buffer are as they were.
  static bool guarded(const std::byte* buffer, size_t bytes) noexcept;

 private:
  std::byte* base_;
  size_t bytes_, used_ = 0;
};

struct TableSpan {
  std::vector<size_t> counts;      // elements
  bool beyond_inline = true;       // also counts around the largest payload of a message, and some beyond
  std::vector<DType> dtypes = {};  // empty: all
  size_t offsets = 16;             // different element offsets of buffers, taken in turn
  size_t most_items = 40;          // of a _many call
};

// What a table needs of its reference: counts up to `largest` on `ranks` ranks.
Reference make_reference(uint64_t seed, int ranks, size_t largest);

class CollectiveTable {
 public:
  // Collective: makes the windows that `memory` asks for.
  CollectiveTable(Communicator& comm, const Memory& memory, const Reference& reference, const TableSpan& span);

  // Runs everything on one stream. Returns at the first operation that fails; wrong bytes are reported and passed over.
  void run(StreamRef stream);
  void run_refusals(StreamRef stream);  // pairs of dtype and op that are not offered

 private:
  struct Output {
    const std::byte* got;
    const std::byte* expected;
    size_t count;
    DType dtype;
  };
  struct Input {
    const std::byte* got;
    const std::byte* expected;
    size_t bytes;
  };
  // One enqueued operation: what it must have done when it is done.
  struct Pending {
    std::string what;
    Work work;
    std::vector<Output> outputs;
    std::vector<Input> unchanged;
    std::vector<Input> guarded;  // buffers; expected unused
  };

  void all_gather(DType dtype, size_t count, bool in_place);
  void reduce_scatter(DType dtype, ReduceOp op, size_t count, bool in_place);
  void all_reduce(DType dtype, ReduceOp op, size_t count, bool in_place);
  void broadcast(DType dtype, size_t count, Rank root);
  void all_to_all(DType dtype, size_t count);
  void all_gather_v(DType dtype, const std::vector<size_t>& counts, bool in_place);
  void reduce_scatter_v(DType dtype, ReduceOp op, const std::vector<size_t>& counts, bool in_place);
  void all_gather_many(size_t items, size_t first_dtype, bool in_place);
  void reduce_scatter_many(size_t items, size_t first_dtype, bool in_place);
  void buckets(DType dtype, size_t count);

  // collectives_table_rooted.cc
  using PairCounts = std::vector<std::vector<size_t>>;  // [source][reader]
  std::vector<Rank> roots_of(DType dtype) const;
  std::vector<PairCounts> pair_counts(DType dtype) const;
  void run_rooted(DType dtype);
  void run_pairs(DType dtype);
  std::byte* unused(Pending& pending, DType dtype);
  void gather(DType dtype, size_t count, Rank root, bool in_place);
  void scatter(DType dtype, size_t count, Rank root, bool in_place);
  void reduce(DType dtype, ReduceOp op, size_t count, Rank root, bool in_place);
  void all_to_all_v(DType dtype, const PairCounts& counts);
  void all_reduce_many(size_t items, size_t first_dtype, bool in_place);
  void broadcast_many(size_t items, size_t first_dtype);

  void barrier();

  std::vector<size_t> counts_for(DType dtype, size_t shards) const;
  size_t shown_parts() const;
  std::vector<std::vector<size_t>> ragged_counts(DType dtype) const;
  void run_reductions(DType dtype);
  void run_ragged(DType dtype);

  std::byte* output(Pending& pending, size_t count, DType dtype);
  std::byte* input(Pending& pending, const std::byte* elements, size_t count, DType dtype);
  size_t next_first() noexcept { return (turn_ += 7) % kShift; }
  void issue(Pending pending, Result<Work> work);
  void flush();  // waits for what is pending and checks it
  void check(const Pending& pending);
  void report(const std::string& text);

  static constexpr size_t kShift = 61;  // consecutive operations see different elements
  friend Reference make_reference(uint64_t, int, size_t);

  Communicator& comm_;
  const Reference& reference_;
  TableSpan span_;
  std::string memory_name_;
  std::optional<Window> window_;
  std::optional<MemoryPool> pool_;
  std::vector<std::byte> heap_;
  std::optional<Arena> arena_;
  StreamRef stream_ = StreamRef::caller();
  std::vector<Pending> pending_;
  size_t turn_ = 0;
  int reports_ = 0;
};

}  // namespace shardcomm::testing
