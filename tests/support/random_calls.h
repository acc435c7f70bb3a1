// Random operations, each checked bit for bit: all ranks draw the same ones from one seed, many may be in flight.
#pragma once
#include <deque>
#include <string>
#include <vector>

#include "shardcomm/shardcomm.h"
#include "tests/support/reference.h"

namespace shardcomm::testing {

// The stream of numbers that all ranks draw alike.
class Draw {
 public:
  explicit Draw(uint64_t seed) : seed_(seed) {}
  size_t below(size_t limit) { return random_bits(seed_, ++drawn_) % limit; }
  // Mostly small, sometimes beyond what fits into a message.
  size_t count(size_t most) { return below(4) == 0 ? below(most + 1) : below(std::min<size_t>(most, 40) + 1); }

 private:
  uint64_t seed_, drawn_ = 0;
};

// Wrong bytes (of an output, of what lies around it, or of an input that must not change) are failures of the test;
// errors of the communicator are the caller's. One thread at a time.
class RandomCalls {
 public:
  static constexpr size_t kMostElements = 30'000;
  static constexpr size_t kMostInFlight = 12;
  static size_t window_bytes(int ranks);  // what `window` must hold

  // Buffers lie in `window` (of window_bytes) where there is one, else each on the heap.
  RandomCalls(Communicator& comm, uint64_t seed, std::byte* window = nullptr)
      : comm_(comm), draw_(seed), seed_(seed), window_(window) {}
  ~RandomCalls() { abandon(); }
  RandomCalls(const RandomCalls&) = delete;
  RandomCalls& operator=(const RandomCalls&) = delete;

  Status one_more(StreamRef stream);
  Status settle(size_t left);  // checks the oldest operations until `left` are in flight, or to the first that failed
  void abandon();              // waits until none runs, whatever became of it
  Draw& draw() { return draw_; }
  uint64_t drawn() const { return number_; }

 private:
  struct Check {
    Work work;
    std::string what;
    std::vector<std::byte> heap;             // [input, guard, output, guard], unless they lie in the window
    std::byte* memory = nullptr;             // the same
    std::vector<std::byte> input, expected;  // what both must be at the end
    size_t output_at = 0;
    DType dtype = DType::kU8;
  };
  static constexpr size_t kGuardBytes = 16;  // in [kGuardBytes, 2 * kGuardBytes) where the output wants alignment
  static constexpr std::byte kPoison{0xa5};

  size_t n() const { return static_cast<size_t>(comm_.size()); }
  uint64_t inputs() const { return random_bits(seed_, 1'000'000 + number_); }
  std::byte* prepare(Check& check, std::string_view call, size_t in_count, size_t out_count);
  std::vector<std::byte> reduced(DType dtype, ReduceOp op, size_t first, size_t count) const;
  ReduceOp draw_op(DType dtype);
  Rank draw_root() { return static_cast<Rank>(draw_.below(n())); }
  std::vector<size_t> draw_cuts(size_t count);  // of some tensors that lie side by side
  Result<Work> gather(Check& check, StreamRef stream);
  Result<Work> scatter(Check& check, StreamRef stream);
  Result<Work> all_reduce(Check& check, StreamRef stream);
  Result<Work> broadcast(Check& check, StreamRef stream);
  Result<Work> exchange(Check& check, StreamRef stream);
  Result<Work> gather_to_root(Check& check, StreamRef stream);
  Result<Work> scatter_from_root(Check& check, StreamRef stream);
  Result<Work> reduce_to_root(Check& check, StreamRef stream);
  Result<Work> exchange_v(Check& check, StreamRef stream);
  Result<Work> all_reduce_many(Check& check, StreamRef stream);
  Result<Work> broadcast_many(Check& check, StreamRef stream);
  Result<Work> messages(Check& check);
  void compare(const Check& check) const;

  Communicator& comm_;
  Draw draw_;
  uint64_t seed_;
  std::byte* window_;
  uint64_t number_ = 0;
  std::deque<Check> checks_;
};

}  // namespace shardcomm::testing
