// Random operations in random order at random moments, many in flight, on two streams and the caller's thread: all
// ranks draw the same operations from one seed, each its own delays.
#include <gtest/gtest.h>

#include <deque>
#include <thread>

#include "tests/collectives_table.h"

namespace shardcomm::testing {
namespace {

using namespace std::chrono_literals;

constexpr size_t kMostElements = 30'000;

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

struct Check {
  Work work;
  std::string what;
  std::vector<std::byte> memory, expected;  // the output at the end of memory
  size_t output_at = 0;
  DType dtype = DType::kU8;
};

class RandomCalls {
 public:
  RandomCalls(Communicator& comm, uint64_t seed) : comm_(comm), draw_(seed), seed_(seed) {}

  void one_more(StreamRef stream) {
    Check& check = checks_.emplace_back();
    check.dtype = static_cast<DType>(draw_.below(kDTypeCount));
    ++number_;
    switch (draw_.below(6)) {
      case 0: gather(check, stream); break;
      case 1: scatter(check, stream); break;
      case 2: all_reduce(check, stream); break;
      case 3: broadcast(check, stream); break;
      case 4: exchange(check, stream); break;
      default:
        check.what = "barrier";
        check.work = take(check, comm_.barrier(stream));
        break;
    }
  }

  // Checks the oldest operations until `left` are in flight.
  void settle(size_t left) {
    for (; checks_.size() > left; checks_.pop_front()) {
      const Check& check = checks_.front();
      const Status status = check.work.synchronize(std::chrono::steady_clock::now() + 30s);
      if (!status.ok()) throw std::runtime_error(check.what + ": " + status.to_string());
      const size_t count = check.expected.size() / size_of(check.dtype);
      const auto at =
          first_difference(check.memory.data() + check.output_at, check.expected.data(), count, check.dtype);
      EXPECT_EQ(at, std::nullopt) << check.what << ", seed " << seed_;
    }
  }

  Draw& draw() { return draw_; }

 private:
  size_t n() const { return static_cast<size_t>(comm_.size()); }
  uint64_t inputs() const { return random_bits(seed_, 1'000'000 + number_); }

  // [in, out] of this rank, filled and poisoned.
  std::byte* prepare(Check& check, std::string_view call, size_t in_count, size_t out_count) {
    const size_t size = size_of(check.dtype);
    check.what = "operation " + std::to_string(number_) + " " + std::string(call) + " " +
                 std::string(name(check.dtype)) + " " + std::to_string(in_count) + " to " + std::to_string(out_count);
    check.output_at = (in_count * size + 15) / 8 * 8;
    check.memory.assign(check.output_at + out_count * size + 8, std::byte{0xa5});
    fill_elements(check.memory.data(), inputs(), comm_.rank(), 0, in_count, check.dtype);
    check.expected.resize(out_count * size);
    return check.memory.data();
  }

  std::vector<std::byte> reduced(DType dtype, ReduceOp op, size_t first, size_t count) const {
    std::vector<std::vector<std::byte>> inputs_of(n(), std::vector<std::byte>(count * size_of(dtype) + 1));
    std::vector<const std::byte*> sources;
    for (size_t r = 0; r < n(); ++r) {
      fill_elements(inputs_of[r].data(), inputs(), static_cast<Rank>(r), first, count, dtype);
      sources.push_back(inputs_of[r].data());
    }
    std::vector<std::byte> result(count * size_of(dtype) + 1);
    reduce_elements(result.data(), sources, count, dtype, op);
    result.pop_back();
    return result;
  }

  ReduceOp draw_op(DType dtype) {
    const auto op = static_cast<ReduceOp>(draw_.below(kReduceOpCount));
    return supports(dtype, op) ? op : ReduceOp::kSum;
  }

  Work take(const Check& check, const Result<Work>& work) {
    if (!work.ok()) throw std::runtime_error(check.what + ": " + work.status().to_string());
    return work.value();
  }

  void gather(Check& check, StreamRef stream) {
    const size_t count = draw_.count(kMostElements);
    std::byte* in = prepare(check, "all_gather", count, n() * count);
    for (size_t r = 0; r < n(); ++r) {
      fill_elements(check.expected.data() + r * count * size_of(check.dtype), inputs(), static_cast<Rank>(r), 0, count,
                    check.dtype);
    }
    check.work = take(check, comm_.all_gather({in, in + check.output_at, count, check.dtype}, stream));
  }

  void scatter(Check& check, StreamRef stream) {
    const size_t count = draw_.count(kMostElements / n());
    const ReduceOp op = draw_op(check.dtype);
    std::byte* in = prepare(check, "reduce_scatter", n() * count, count);
    check.expected = reduced(check.dtype, op, static_cast<size_t>(comm_.rank()) * count, count);
    check.work = take(check, comm_.reduce_scatter({in, in + check.output_at, count, check.dtype, op}, stream));
  }

  void all_reduce(Check& check, StreamRef stream) {
    const size_t count = draw_.count(kMostElements);
    const ReduceOp op = draw_op(check.dtype);
    std::byte* in = prepare(check, "all_reduce", count, count);
    check.expected = reduced(check.dtype, op, 0, count);
    check.work = take(check, comm_.all_reduce({in, in + check.output_at, count, check.dtype, op}, stream));
  }

  void broadcast(Check& check, StreamRef stream) {
    const size_t count = draw_.count(kMostElements);
    const auto root = static_cast<Rank>(draw_.below(n()));
    std::byte* in = prepare(check, "broadcast", 0, count);
    fill_elements(check.expected.data(), inputs(), root, 0, count, check.dtype);
    std::byte* data = in + check.output_at;
    if (comm_.rank() == root) fill_elements(data, inputs(), root, 0, count, check.dtype);
    check.work = take(check, comm_.broadcast({data, count, check.dtype, root}, stream));
  }

  void exchange(Check& check, StreamRef stream) {
    const size_t count = draw_.count(kMostElements / n());
    std::byte* in = prepare(check, "all_to_all", n() * count, n() * count);
    for (size_t r = 0; r < n(); ++r) {
      fill_elements(check.expected.data() + r * count * size_of(check.dtype), inputs(), static_cast<Rank>(r),
                    static_cast<size_t>(comm_.rank()) * count, count, check.dtype);
    }
    check.work = take(check, comm_.all_to_all({in, in + check.output_at, count, check.dtype}, stream));
  }

  Communicator& comm_;
  Draw draw_;
  uint64_t seed_;
  uint64_t number_ = 0;
  std::deque<Check> checks_;
};

void run_random(RankContext& rank, const Memory& memory, uint64_t seed, int operations) {
  Communicator comm = rank.communicator(memory.options);
  std::vector<HostStream> streams;
  for (const char* name : {"even", "odd"}) streams.push_back(HostStream::create(name).value());
  RandomCalls calls(comm, seed);
  for (int i = 0; i < operations; ++i) {
    const size_t place = calls.draw().below(8);
    const StreamRef on = place == 0 ? StreamRef::caller() : streams[place % 2].ref();
    calls.one_more(on);
    // Delays of one's own: of this thread, of a stream, or none.
    const uint64_t mine = random_bits(seed, static_cast<uint64_t>(rank.rank()) + 77, static_cast<uint64_t>(i));
    const auto nap = std::chrono::microseconds(mine >> 8 & 511);
    if (mine % 16 == 0) std::this_thread::sleep_for(nap);
    if (mine % 16 == 1) {
      ASSERT_TRUE(streams[mine >> 32 & 1].ref().enqueue([nap] { std::this_thread::sleep_for(nap); }).ok());
    }
    calls.settle(12);
  }
  calls.settle(0);
}

class Random : public ::testing::TestWithParam<std::tuple<RankMode, Memory, int>> {};

TEST_P(Random, OperationsInFlightDoNotDisturbEachOther) {
  const auto& [mode, memory, ranks] = GetParam();
  const uint64_t seed = test_seed() + static_cast<uint64_t>(ranks);
  SCOPED_TRACE("seed " + std::to_string(test_seed()));
  run_ranks(ranks, mode, [&, memory = memory](RankContext& rank) { run_random(rank, memory, seed, 400); });
}

std::string name_of(const ::testing::TestParamInfo<std::tuple<RankMode, Memory, int>>& info) {
  const auto& [mode, memory, ranks] = info.param;
  return std::string(name(mode)) + "_" + std::string(memory.name) + "_" + std::to_string(ranks);
}

INSTANTIATE_TEST_SUITE_P(Threads, Random,
                         ::testing::Combine(::testing::Values(RankMode::kThreads), ::testing::Values(kAttachedMemory),
                                            ::testing::Values(2, 3, 4)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Processes, Random,
                         ::testing::Combine(::testing::Values(RankMode::kProcesses),
                                            ::testing::Values(kAttachedMemory, kSmallPieces, kStagedMemory, kSmallRing),
                                            ::testing::Values(2, 3, 4)),
                         name_of);

}  // namespace
}  // namespace shardcomm::testing
