// What this machine can do at best, measured in the same run as a collective and in turn with it: every rank moves the
// bytes that the collective has to move, all at once, from the places where they lie, with the plainest fast loops and
// without a word to the others.
//
// With n ranks, S bytes of the whole buffer, s of this rank's shard, a rank must at least
//   all_gather       copy S − s in place (the peers' shards), S out of place (its own, too)
//   reduce_scatter   read s from each of n sources and write s
//   all_reduce       the same with s = S/n, then copy S − s
//   broadcast        copy S, but for the root
//   all_to_all       copy S (its own part, too)
//   sendrecv         copy S, all ranks at once
//   pingpong         copy S, one rank alone
//   barrier          see one cache line of a peer; so does the all_gather of a mosaic, whose bytes stay where they are
// and no operation is faster than one cache line's way between two ranks. The limit of a row is the longer of the two
// times; "% limit" is that time divided by the median time of the collective. Shards are copied out of memory that all
// ranks map where buffers are windows or mosaics, and out of the rank's own where they are ordinary memory; into the
// collective's own output. Of several loops the one with the best median counts.
#pragma once
#include <array>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "tools/bench/layout.h"
#include "tools/bench/memory.h"
#include "tools/bench/streams.h"

namespace shardcomm::tools {

// A stretch that a rank copies from one source, or sums from all (source < 0). Bytes; `from` in the source's memory.
struct Move {
  size_t to;
  size_t bytes;
  Rank source;
  size_t from;
};
std::vector<Move> moves_of(const BenchSpec& spec, const BenchLayout& layout, Rank rank, int ranks);

// Samples of this rank in microseconds, by loop.
using LimitSamples = std::array<std::vector<double>, std::size(kLoops)>;

class Limits {
 public:
  // Collective. Sources of `source_bytes` for each rank, which together have `cores` hardware threads. Without one for
  // each rank there is no one-way time, and a sample is the processor's time times the turns that ranks must take.
  static Result<Limits> create(Communicator& comm, const BenchSpec& spec, size_t source_bytes, int cores);

  // Gives this rank's source, or all of them where they are not shared, something to read. Ranges are bytes.
  void prepare(const std::vector<Move>& moves, size_t own_at, size_t own_bytes);
  // What samples are taken by.
  double clock_us() const;
  // This rank's part, once, into `out`.
  void run(const std::vector<Move>& moves, std::byte* out, Loop loop) const;
  // Collective: `count` samples of each loop, each of `batch` runs, begun by all ranks together.
  Status sample(const std::vector<Move>& moves, std::byte* out, int batch, int count, LimitSamples& samples);
  // The time between a store of rank 0 and its being seen by rank 1, or back: half of a round trip.
  // Ranks 0 and 1 together; nothing on the others, and where it cannot be measured.
  std::optional<double> one_way_us();

 private:
  Limits(Communicator& comm, Pages sources, size_t source_bytes);
  std::byte* source(Rank rank) const {
    return sources_.data() + static_cast<size_t>(rank) * source_bytes_ + offset_bytes_;
  }

  Communicator* comm_;
  Pages sources_;  // [ranks, source_bytes]
  size_t source_bytes_;
  size_t offset_bytes_ = 0;     // from the page at which each begins, as the collective's buffers
  bool shared_ = false;         // the sources
  double turns_ = 1;            // ranks for each hardware thread
  std::optional<Pages> lines_;  // of ranks 0 and 1
  uint64_t round_ = 0;
};

// Collective: the median of the slowest rank's samples, with the best loop.
Result<double> best_us(Communicator& comm, const LimitSamples& samples);

// Out of cache, as GB/s (1e9 bytes) of one rank while all are at it; nothing where it was not measured.
struct MachineLimits {
  size_t bytes = 0;                       // what each rank copied
  std::optional<double> copy_gb_s;        // bytes copied
  std::optional<double> read_write_gb_s;  // bytes written, of sums of as many sources as ranks
  std::optional<double> one_way_us;
};

// Collective.
Result<MachineLimits> machine_limits(Communicator& comm, const BenchSpec& spec, int cores);

}  // namespace shardcomm::tools
