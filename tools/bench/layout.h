// What a collective of a given size takes and gives, as element ranges: so that filling, checking and calling need not
// know one collective from another.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shardcomm/communicator.h"
#include "tools/bench/values.h"

namespace shardcomm::tools {

// Where buffers lie. The shards of a mosaic are whole pages, read where they are: all_gather only, never in place.
enum class BenchMemory : uint8_t { kWindow, kOrdinary, kMosaic, kPool };
inline constexpr int kBenchMemoryCount = 4;
std::string_view name(BenchMemory memory) noexcept;  // "window"
std::optional<BenchMemory> parse_bench_memory(std::string_view text) noexcept;

// Messages between two ranks, in place of a collective.
enum class BenchMessages : uint8_t {
  kNone,
  kSendRecv,  // every rank sends the whole to the next and receives it from the previous one, both at once
  kPingPong,  // ranks 0 and 1, 2 and 3, ... send it there and back; the time is half of that
};
inline constexpr std::string_view kBenchMessagesNames[] = {"", "sendrecv", "pingpong"};

struct BenchSpec {
  // Of messages: all_to_all, with which they have in common that every byte goes from one rank to one other.
  Collective collective = Collective::kAllGather;
  BenchMessages messages = BenchMessages::kNone;
  DType dtype = DType::kF32;
  ReduceOp op = ReduceOp::kSum;
  bool in_place = false;
  BenchMemory memory = BenchMemory::kWindow;
  bool check = true;
  bool limits = true;      // measure the machine's own, too
  bool bind = false;       // each rank to a core
  size_t begin_bytes = 8;  // of the whole buffer
  size_t end_bytes = size_t{256} << 20;
  size_t factor = 2;
  size_t extra_bytes = 0;   // on top of each size
  size_t offset_bytes = 0;  // from the page at which buffers begin
  size_t items = 16;        // most tensors of a _many form
  double skew = 0;          // largest over smallest of ragged shards and of tensors; 0: sizes 1 : 2 : 3 : …
  int iterations = 0;       // timed samples of each size; 0: as timing.h says
  int warmup = 5;
  uint64_t seed = 0;            // 0: rank 0 draws one
  std::string transports = {};  // empty: as the environment says
};

std::string_view name_of_bench(const BenchSpec& spec) noexcept;              // "all_gather", "sendrecv"
Rank message_source(BenchMessages messages, Rank rank, int ranks) noexcept;  // -1: none
Rank message_target(BenchMessages messages, Rank rank, int ranks) noexcept;  // -1: none
bool allows_in_place(Collective collective) noexcept;  // all but all_to_all, all_to_all_v and barrier
bool is_in_place(const BenchSpec& spec) noexcept;  // as asked for, or always, like a broadcast (every root is rank 0)
bool moves_bytes(const BenchSpec& spec) noexcept;  // all but a barrier and the gather of a mosaic

// Elements [at, at + count) of a buffer are elements first, first + 1, … of the input of rank `source`.
struct InputRange {
  size_t at;
  size_t count;
  size_t first;
};
struct OutputRange {
  size_t at;
  size_t count;
  Rank source;  // -1: the reduction over all ranks
  size_t first;
};

// All offsets and counts are elements. In place, input and output are one buffer.
struct BenchLayout {
  size_t whole_count = 0;  // what the bytes column means: every rank's part together
  size_t shown_count = 0;  // the count column: as an argument of the call, or the sum of its counts
  size_t input_extent = 0;
  size_t output_extent = 0;
  std::vector<InputRange> inputs;    // one for each pointer that the call takes
  std::vector<OutputRange> outputs;  // what must be there afterwards
  std::vector<size_t> output_at;     // where the pointers to outputs point, one for each input
  std::vector<size_t> counts;  // of the call: one, one a rank (_v; both counts of all_to_all_v), or one an item (_many)
};

// The layout nearest to `bytes`, at least one element a shard; of a mosaic, the next with whole pages.
BenchLayout make_layout(const BenchSpec& spec, Rank rank, int ranks, size_t bytes);

// busbw / algbw: the bytes that the busiest link must carry, as a part of the whole (nccl-tests, PERFORMANCE.md); 0
// where none move.
double bus_factor(const BenchSpec& spec, int ranks) noexcept;

}  // namespace shardcomm::tools
