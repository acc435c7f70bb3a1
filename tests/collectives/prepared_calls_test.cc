// Prepared calls: the same bits as plain ones, which peers may make instead, in the right memory when windows have come
// and gone between runs; their lives and those of communicators.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <optional>
#include <thread>

#include "tests/support/collectives_table.h"

// Every allocation of this program and of the library is counted, by thread.
namespace {
thread_local size_t allocations = 0;
}
[[gnu::noinline]] void* operator new(size_t bytes) {
  ++allocations;
  if (void* const memory = std::malloc(std::max<size_t>(bytes, 1)); memory != nullptr) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace shardcomm::testing {
namespace {

constexpr size_t kItems = 24, kMost = 96;  // tensors, and the elements of the largest shard
constexpr size_t kElementBytes = 16;       // of the largest dtype

struct Tensor {
  std::byte *shard, *full;
  size_t count;
  DType dtype;
  ReduceOp op = ReduceOp::kSum;
  bool operator==(const Tensor&) const = default;
};

// Fills the inputs anew, makes the call, and compares every byte of the outputs. A call that comes again is the one
// that was prepared the first time; every third one, on one rank after the other, is a plain call instead.
class Caller {
 public:
  explicit Caller(Communicator& comm) : comm_(comm) {}

  void gather(std::span<const Tensor> tensors, std::string_view label = {}) {
    ++calls_;
    std::vector<GatherItem> items;
    for (size_t i = 0; i < tensors.size(); ++i) {
      const Tensor& t = tensors[i];
      std::memset(t.full, 0x5a, n() * t.count * size_of(t.dtype));
      fill_elements(t.shard, seed(i), comm_.rank(), 0, t.count, t.dtype);
      items.push_back({t.shard, t.full, t.count, t.dtype});
    }
    const Result<Work> work = is_plain() ? comm_.all_gather_many(items, StreamRef::caller(), label)
                                         : prepared(tensors, false, label, [&] {
                                             return comm_.prepare_gather(items, label);
                                           }).run(StreamRef::caller());
    ASSERT_TRUE(work.ok()) << work.status().to_string();
    for (size_t i = 0; i < tensors.size(); ++i) {
      const Tensor& t = tensors[i];
      const size_t bytes = t.count * size_of(t.dtype);
      std::vector<std::byte> expected(bytes);
      for (Rank r = 0; r < comm_.size(); ++r) {
        fill_elements(expected.data(), seed(i), r, 0, t.count, t.dtype);
        ASSERT_TRUE(std::equal(expected.begin(), expected.end(), t.full + static_cast<size_t>(r) * bytes))
            << "call " << calls_ << ", item " << i << ", of rank " << r;
      }
    }
  }

  void scatter(std::span<const Tensor> tensors) {
    ++calls_;
    const auto me = static_cast<size_t>(comm_.rank());
    std::vector<ReduceItem> items;
    for (size_t i = 0; i < tensors.size(); ++i) {
      const Tensor& t = tensors[i];
      fill_elements(t.full, seed(i), comm_.rank(), 0, n() * t.count, t.dtype);
      items.push_back({t.full, t.shard, t.count, t.dtype, t.op});
    }
    const Result<Work> work =
        is_plain() ? comm_.reduce_scatter_many(items, StreamRef::caller())
                   : prepared(tensors, true, {}, [&] { return comm_.prepare_reduce(items); }).run(StreamRef::caller());
    ASSERT_TRUE(work.ok()) << work.status().to_string();
    for (size_t i = 0; i < tensors.size(); ++i) {
      const Tensor& t = tensors[i];
      const size_t bytes = t.count * size_of(t.dtype);
      std::vector<std::byte> inputs(n() * bytes), expected(bytes);
      std::vector<const std::byte*> sources;
      for (size_t r = 0; r < n(); ++r) {
        fill_elements(inputs.data() + r * bytes, seed(i), static_cast<Rank>(r), me * t.count, t.count, t.dtype);
        sources.push_back(inputs.data() + r * bytes);
      }
      reduce_elements(expected.data(), sources, t.count, t.dtype, t.op);
      ASSERT_EQ(first_difference(t.shard, expected.data(), t.count, t.dtype), std::nullopt)
          << "call " << calls_ << ", item " << i;
    }
  }

 private:
  size_t n() const { return static_cast<size_t>(comm_.size()); }
  bool is_plain() const { return (calls_ + static_cast<uint64_t>(comm_.rank())) % 3 == 0; }
  struct Known {
    std::vector<Tensor> tensors;
    bool reduces;
    std::string label;
    PreparedCall call;
  };
  template <class Prepare>
  PreparedCall& prepared(std::span<const Tensor> tensors, bool reduces, std::string_view label, Prepare prepare) {
    for (Known& known : known_) {
      if (known.reduces == reduces && known.label == label && std::ranges::equal(known.tensors, tensors))
        return known.call;
    }
    Result<PreparedCall> call = prepare();
    if (!call.ok()) throw std::runtime_error(call.status().to_string());
    known_.push_back({{tensors.begin(), tensors.end()}, reduces, std::string(label), std::move(call).value()});
    return known_.back().call;
  }
  uint64_t seed(size_t item) const { return random_bits(test_seed(), calls_, item); }
  Communicator& comm_;
  uint64_t calls_ = 0;
  std::vector<Known> known_;
};

// Tensors of which each has room for one more, and for the largest dtype.
size_t room_bytes(int ranks) { return kItems * (static_cast<size_t>(ranks) + 1) * (kMost + 8) * kElementBytes; }

std::vector<Tensor> tensors_at(std::byte* base, int ranks) {
  std::vector<Tensor> tensors;
  const size_t slot = (static_cast<size_t>(ranks) + 1) * (kMost + 8) * kElementBytes;
  for (size_t i = 0; i < kItems; ++i) {
    std::byte* const shard = base + i * slot;
    tensors.push_back({shard, shard + (kMost + 8) * kElementBytes, 1 + i * 37 % kMost, DType::kF32});
  }
  return tensors;
}

std::byte* moved(std::byte* at) { return at + 8; }

class PreparedCalls : public ::testing::TestWithParam<RankMode> {};

// Many prepared calls of the same communicator, each of which differs from the others in one thing.
TEST_P(PreparedCalls, GiveTheBitsOfPlainCallsForEveryArgument) {
  run_ranks(3, GetParam(), [](RankContext& rank) {
    Communicator comm = rank.communicator("algorithm=direct");
    Window window = comm.allocate_window(room_bytes(3), "tensors").value();
    const std::vector<Tensor> base = tensors_at(window.data(), 3);
    const std::pair<const char*, void (*)(Tensor&)> changes[] = {
        {"nothing", [](Tensor&) {}},
        {"count", [](Tensor& t) { ++t.count; }},
        {"no elements", [](Tensor& t) { t.count = 0; }},
        {"dtype", [](Tensor& t) { t.dtype = DType::kI32; }},
        {"larger dtype", [](Tensor& t) { t.dtype = DType::kF64; }},
        {"op", [](Tensor& t) { t.op = ReduceOp::kMax; }},
        {"shard", [](Tensor& t) { t.shard = moved(t.shard); }},
        {"full", [](Tensor& t) { t.full = moved(t.full); }},
    };
    Caller caller(comm);
    for (int round = 0; round < 3; ++round) {
      for (const size_t item : {kItems / 2, size_t{0}, kItems - 1}) {
        for (const auto& [text, change] : changes) {
          SCOPED_TRACE(::testing::Message() << text << " of item " << item);
          std::vector<Tensor> tensors = base;
          change(tensors[item]);
          for (int again = 0; again < 3; ++again) {  // the first run, one that fills its tables, one that uses them
            ASSERT_NO_FATAL_FAILURE(caller.gather(tensors));
            ASSERT_NO_FATAL_FAILURE(caller.scatter(tensors));
          }
          ASSERT_NO_FATAL_FAILURE(caller.gather(base));
          ASSERT_NO_FATAL_FAILURE(caller.scatter(base));
        }
      }
    }
  });
}

// In every round a window takes the place of another, on one rank that of the one that has just closed there: then what
// lies at the same place here lies elsewhere at the peers.
TEST_P(PreparedCalls, FindWindowsThatTakeThePlaceOfOthers) {
  constexpr int kRounds = 60;
  run_ranks(3, GetParam(), [](RankContext& rank) {
    Communicator comm = rank.communicator("algorithm=direct");
    Caller caller(comm);
    std::optional<Window> window;
    std::vector<std::byte*> places;
    size_t at_an_old_place = 0;
    for (int round = 0; round < kRounds; ++round) {
      if (round % comm.size() == comm.rank()) window.reset();
      Window next = comm.allocate_window(room_bytes(3), "tensors").value();
      window = std::move(next);
      at_an_old_place += static_cast<size_t>(std::count(places.begin(), places.end(), window->data()));
      places.push_back(window->data());
      const std::vector<Tensor> tensors = tensors_at(window->data(), 3);
      for (int again = 0; again < 2; ++again) {
        ASSERT_NO_FATAL_FAILURE(caller.gather(tensors));
        ASSERT_NO_FATAL_FAILURE(caller.scatter(tensors));
      }
    }
    EXPECT_GT(at_an_old_place, 0U) << "no window took the place of another: this has shown nothing";
  });
}

// A window closes and none comes: what lies there then is ordinary memory.
TEST(PreparedCallsOfProcesses, FindOrdinaryMemoryInThePlaceOfAWindow) {
  run_ranks(3, RankMode::kProcesses, [](RankContext& rank) {
    Communicator comm = rank.communicator("algorithm=direct");
    Caller caller(comm);
    std::optional<Window> window = comm.allocate_window(room_bytes(3), "tensors").value();
    std::byte* const place = window->data();
    const std::vector<Tensor> tensors = tensors_at(place, 3);
    const auto again = [&] {
      for (int i = 0; i < 3; ++i) {
        ASSERT_NO_FATAL_FAILURE(caller.gather(tensors));
        ASSERT_NO_FATAL_FAILURE(caller.scatter(tensors));
      }
    };
    ASSERT_NO_FATAL_FAILURE(again());
    window.reset();
    void* const memory =
        mmap(place, room_bytes(3), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    ASSERT_EQ(memory, place);
    ASSERT_NO_FATAL_FAILURE(again());
    munmap(memory, room_bytes(3));
  });
}

// Ordinary memory, of which nothing is kept, by every way that it may take.
TEST(PreparedCallsOfProcesses, MayLieInOrdinaryMemory) {
  for (const char* access : {"attach", "attach_gathers", "staging"}) {
    SCOPED_TRACE(access);
    run_ranks(3, RankMode::kProcesses, [access](RankContext& rank) {
      const std::string options = std::string("algorithm=direct,memory_access=") + access;
      Result<Communicator> comm = rank.try_communicator(options);
      if (!comm.ok()) return;  // attach is not allowed here, which ordinary_memory_test looks into
      std::vector<std::byte> memory(room_bytes(3));
      Caller caller(*comm);
      const std::vector<Tensor> tensors = tensors_at(memory.data(), 3);
      for (int again = 0; again < 4; ++again) {
        ASSERT_NO_FATAL_FAILURE(caller.gather(tensors));
        ASSERT_NO_FATAL_FAILURE(caller.scatter(tensors));
      }
    });
  }
}

// More tensors than one announcement holds, of which nothing is kept either.
TEST(PreparedCallsOfProcesses, MayTakeSeveralAnnouncements) {
  run_ranks(2, RankMode::kProcesses, [](RankContext& rank) {
    constexpr size_t kMany = 9000, kSlot = 64;
    Communicator comm = rank.communicator("algorithm=direct");
    Window window = comm.allocate_window(kMany * 2 * kSlot, "tensors").value();
    std::vector<Tensor> tensors;
    for (size_t i = 0; i < kMany; ++i) {
      std::byte* const shard = window.data() + 2 * i * kSlot;
      tensors.push_back({shard, shard + kSlot, 1 + i % 7, DType::kF32});
    }
    Caller caller(comm);
    for (int again = 0; again < 4; ++again) {
      ASSERT_NO_FATAL_FAILURE(caller.gather(tensors));
      ASSERT_NO_FATAL_FAILURE(caller.scatter(tensors));
    }
  });
}

// What shows that the tables of a prepared call are found again is that it needs no memory any more.
TEST(PreparedCallsOfProcesses, AllocateNothing) {
  run_ranks(2, RankMode::kProcesses, [](RankContext& rank) {
    Communicator comm = rank.communicator("algorithm=direct");
    Window window = comm.allocate_window(room_bytes(2), "tensors").value();
    std::vector<GatherItem> gathers;
    std::vector<ReduceItem> reductions;
    for (const Tensor& t : tensors_at(window.data(), 2)) {
      gathers.push_back({t.shard, t.full, t.count, t.dtype});
      reductions.push_back({t.full, t.shard, t.count, t.dtype, t.op});
    }
    PreparedCall gather = comm.prepare_gather(gathers).value(), reduction = comm.prepare_reduce(reductions).value();
    const auto both = [&] {
      const size_t before = allocations;
      EXPECT_TRUE(gather.run(StreamRef::caller()).ok());
      EXPECT_TRUE(reduction.run(StreamRef::caller()).ok());
      return allocations - before;
    };
    EXPECT_GT(both(), 0U) << "allocations are not counted";
    EXPECT_EQ(both(), 0U);
    Window other = comm.allocate_window(4096, "other").value();
    EXPECT_GT(both(), 0U) << "windows have changed";
    EXPECT_EQ(both(), 0U);
  });
}

// On two streams, with more runs in flight than are waited for.
TEST_P(PreparedCalls, RunOnStreams) {
  constexpr size_t kCalls = 40;
  run_ranks(3, GetParam(), [](RankContext& rank) {
    Communicator comm = rank.communicator();
    Window in = comm.allocate_window(room_bytes(3), "in").value();
    HostStream streams[] = {HostStream::create("even").value(), HostStream::create("odd").value()};
    // Each call takes what the one before gave, so one that comes too early or too late is seen.
    const std::vector<Tensor> tensors = tensors_at(in.data(), 3);
    const auto n = static_cast<size_t>(comm.size());
    std::vector<GatherItem> gathers;
    std::vector<ReduceItem> reductions;
    for (const Tensor& t : tensors) {
      std::vector<uint32_t> ones(t.count, 1);
      std::memcpy(t.shard, ones.data(), t.count * 4);
      gathers.push_back({t.shard, t.full, t.count, DType::kU32});
      reductions.push_back({t.full, t.shard, t.count, DType::kU32, ReduceOp::kSum});
    }
    std::vector<Work> works;
    std::optional<PreparedCall> gather = comm.prepare_gather(gathers).value(),
                                reduction = comm.prepare_reduce(reductions).value();
    gathers.clear();
    reductions.clear();
    for (size_t i = 0; i < kCalls; ++i) {
      works.push_back(gather->run(streams[i % 2].ref()).value());
      works.push_back(reduction->run(streams[(i + 1) % 2].ref()).value());
    }
    gather.reset();  // while runs are still in the streams
    reduction.reset();
    for (const Work& work : works)
      ASSERT_TRUE(work.synchronize(std::chrono::steady_clock::now() + std::chrono::seconds(60)).ok());
    uint32_t power = 1;  // each pair multiplies by the number of ranks, modulo 2^32
    for (size_t i = 0; i < kCalls; ++i) power *= static_cast<uint32_t>(n);
    for (const Tensor& t : tensors) {
      for (size_t i = 0; i < t.count; ++i) {
        uint32_t got = 0;
        std::memcpy(&got, t.shard + i * 4, 4);
        ASSERT_EQ(got, power);
      }
    }
  });
}

TEST_P(PreparedCalls, AreComparedWithThePeers) {
  run_ranks(2, GetParam(), [](RankContext& rank) {
    Communicator comm = rank.communicator();
    Window window = comm.allocate_window(room_bytes(2), "tensors").value();
    const std::vector<Tensor> tensors = tensors_at(window.data(), 2);
    Caller caller(comm);
    for (int again = 0; again < 3; ++again) {
      for (const char* label : {"left", "right"}) {
        ASSERT_NO_FATAL_FAILURE(caller.gather(tensors, label));
        ASSERT_NO_FATAL_FAILURE(caller.gather(tensors, label));
      }
    }
    std::vector<GatherItem> items;
    for (const Tensor& t : tensors) items.push_back({t.shard, t.full, t.count, t.dtype});
    const Result<Work> work = comm.all_gather_many(items, StreamRef::caller(), comm.rank() == 0 ? "left" : "right");
    ASSERT_EQ(work.status().code(), Code::kFailedPrecondition) << work.status().to_string();
    EXPECT_NE(work.status().to_string().find("left"), std::string::npos) << work.status().to_string();
    EXPECT_NE(work.status().to_string().find("right"), std::string::npos) << work.status().to_string();
  });
}

TEST_P(PreparedCalls, RefuseWhatTheCallRefusesAndAskNoPeer) {
  run_ranks(2, GetParam(), [](RankContext& rank) {
    Communicator comm = rank.communicator();
    std::vector<float> memory(64);
    const GatherItem wrong[] = {{memory.data(), memory.data() + 8, 4, DType::kF32},
                                {nullptr, memory.data(), 1, DType::kF32}};
    const Status status = comm.prepare_gather(wrong, "g").status();
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_NE(status.to_string().find("checking item 1"), std::string::npos) << status.to_string();
    const ReduceItem average[] = {{memory.data(), memory.data() + 32, 4, DType::kI32, ReduceOp::kAverage}};
    EXPECT_EQ(comm.prepare_reduce(average).status().code(), Code::kUnsupported);
    // One rank prepares twice, the other not at all: only runs are operations.
    if (comm.rank() == 0) {
      EXPECT_TRUE(comm.prepare_gather({}).ok());
      EXPECT_TRUE(comm.prepare_reduce({}).ok());
    }
    EXPECT_TRUE(comm.barrier(StreamRef::caller()).ok());
  });
}

TEST_P(PreparedCalls, OfNoneAndOfOneTensorRun) {
  run_ranks(3, GetParam(), [](RankContext& rank) {
    Communicator comm = rank.communicator();
    PreparedCall none = comm.prepare_gather({}, "none").value();
    EXPECT_TRUE(none.run(StreamRef::caller()).ok());
    Window window = comm.allocate_window(room_bytes(3), "tensor").value();
    Caller caller(comm);
    for (int again = 0; again < 4; ++again) {
      ASSERT_NO_FATAL_FAILURE(caller.gather({tensors_at(window.data(), 3).data(), 1}));
      ASSERT_NO_FATAL_FAILURE(caller.scatter({tensors_at(window.data(), 3).data(), 1}));
    }
  });
}

TEST_P(PreparedCalls, OutliveTheirCommunicatorAndItsFailure) {
  run_ranks(2, GetParam(), [](RankContext& rank) {
    std::optional<Communicator> comm = rank.communicator();
    float mine = 1, both[2] = {};
    const GatherItem item{&mine, both, 1, DType::kF32};
    PreparedCall call = comm->prepare_gather({&item, 1}).value(), other = comm->prepare_gather({&item, 1}).value();
    EXPECT_TRUE(call.run(StreamRef::caller()).ok());
    if (rank.rank() == 0) comm->abort("enough");
    while (comm->health().ok()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_EQ(call.run(StreamRef::caller()).status().code(), Code::kAborted);
    comm.reset();
    EXPECT_EQ(call.run(StreamRef::caller()).status().code(), Code::kFailedPrecondition);
    other = std::move(call);
    EXPECT_EQ(other.run(StreamRef::caller()).status().code(), Code::kFailedPrecondition);
  });
}

// Tensors lie at other places of each rank's window, so no rank finds its peers' bytes from its own addresses.
TEST_P(PreparedCalls, MayLieElsewhereOnEveryRank) {
  run_ranks(3, GetParam(), [](RankContext& rank) {
    Communicator comm = rank.communicator("algorithm=direct");
    Window window = comm.allocate_window(room_bytes(3) + 3 * 4096, "tensors").value();
    const std::vector<Tensor> tensors = tensors_at(window.data() + 4096 * static_cast<size_t>(rank.rank()), 3);
    Caller caller(comm);
    for (int again = 0; again < 5; ++again) {
      ASSERT_NO_FATAL_FAILURE(caller.gather(tensors));
      ASSERT_NO_FATAL_FAILURE(caller.scatter(tensors));
    }
  });
}

// A peer runs the same call from another place of its window each time, as one that prepares anew does. What was found
// while it lay as here, or elsewhere, is not where it lies now.
TEST_P(PreparedCalls, FindPeersThatHaveMoved) {
  run_ranks(3, GetParam(), [](RankContext& rank) {
    Communicator comm = rank.communicator("algorithm=direct");
    Window window = comm.allocate_window(room_bytes(3) + 3 * 4096, "tensors").value();
    Caller caller(comm);
    for (size_t run = 0; run < 24; ++run) {
      const size_t place = rank.rank() == 0 ? 0 : run / 2 * static_cast<size_t>(rank.rank()) % 3;
      const std::vector<Tensor> tensors = tensors_at(window.data() + 4096 * place, 3);
      ASSERT_NO_FATAL_FAILURE(caller.gather(tensors)) << "run " << run;
      ASSERT_NO_FATAL_FAILURE(caller.scatter(tensors)) << "run " << run;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, PreparedCalls, ::testing::Values(RankMode::kThreads, RankMode::kProcesses),
                         [](const auto& info) { return std::string(name(info.param)); });

}  // namespace
}  // namespace shardcomm::testing
