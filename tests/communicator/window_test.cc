// Windows: what they promise about their memory, their life, and about asking for too much.
#include <cstring>

#include "tests/support/failure.h"
#include "tests/support/reference.h"

namespace shardcomm::testing {
namespace {

class Windows : public ::testing::TestWithParam<RankMode> {};

TEST_P(Windows, AreZeroFilledPageAlignedAndWritable) {
  run_ranks(3, GetParam(), [](RankContext& rank) {
    Communicator comm = rank.communicator();
    for (const size_t bytes : {size_t{1}, size_t{4096}, size_t{4097}, size_t{3} << 20}) {
      Result<Window> window = comm.allocate_window(bytes, "weights of everything");
      ASSERT_TRUE(window.ok()) << window.status().to_string();
      EXPECT_EQ(window->size_bytes(), bytes);
      EXPECT_EQ(window->label(), "weights of everything");
      EXPECT_TRUE(window->owns_memory());
      EXPECT_EQ(reinterpret_cast<uintptr_t>(window->data()) % 4096, 0u);
      EXPECT_TRUE(std::all_of(window->data(), window->data() + bytes, [](std::byte b) { return b == std::byte{0}; }));
      std::memset(window->data(), 0xff, bytes);
      Window moved(std::move(*window));
      EXPECT_EQ(moved.size_bytes(), bytes);
      ASSERT_TRUE(outcome(comm.barrier(StreamRef::caller())).ok());
    }
  });
}

TEST_P(Windows, MayBeEmptyOrDifferInSize) {
  run_ranks(3, GetParam(), [](RankContext& rank) {
    Communicator comm = rank.communicator();
    Result<Window> empty = comm.allocate_window(0, "");
    ASSERT_TRUE(empty.ok()) << empty.status().to_string();
    EXPECT_EQ(empty->size_bytes(), 0u);
    const auto mine = static_cast<size_t>(rank.rank()) * 200'000;
    Result<Window> uneven = comm.allocate_window(mine, "uneven");
    ASSERT_TRUE(uneven.ok()) << uneven.status().to_string();
    std::memset(uneven->data(), rank.rank() + 1, mine);
    const size_t counts[] = {0, 200'000, 400'000};
    std::vector<std::byte> full(600'000);
    const Status status = outcome(comm.all_gather_v(
        {mine == 0 ? nullptr : uneven->data(), full.data(), counts, DType::kU8}, StreamRef::caller()));
    ASSERT_TRUE(status.ok()) << status.to_string();
    EXPECT_EQ(full.front(), std::byte{2});
    EXPECT_EQ(full.back(), std::byte{3});
  });
}

TEST_P(Windows, ManyAtOnceAreToldApart) {
  run_ranks(2, GetParam(), [](RankContext& rank) {
    Communicator comm = rank.communicator();
    constexpr size_t kBytes = 300'000;
    std::vector<std::optional<Window>> windows;
    for (int i = 0; i < 24; ++i) windows.emplace_back(comm.allocate_window(kBytes, "one of many").value());
    const auto check = [&](size_t i) {
      const auto mine = static_cast<unsigned char>(i * 2 + static_cast<size_t>(rank.rank()));
      std::memset(windows[i]->data(), mine, kBytes);
      std::vector<unsigned char> full(2 * kBytes);
      ASSERT_TRUE(
          outcome(comm.all_gather({windows[i]->data(), full.data(), kBytes, DType::kU8}, StreamRef::caller())).ok());
      EXPECT_EQ(full[0], i * 2);
      EXPECT_EQ(full[2 * kBytes - 1], i * 2 + 1);
    };
    for (size_t i = 0; i < windows.size(); ++i) check(i);
    for (size_t i = 0; i < windows.size(); i += 2) windows[i].reset();  // and some come and go
    for (size_t i = 0; i < windows.size(); i += 4) windows[i] = comm.allocate_window(kBytes, "new").value();
    for (size_t i = 0; i < windows.size(); ++i) {
      if (windows[i]) check(i);
    }
  });
}

// A buffer that begins in a window and ends beyond it is ordinary memory.
TEST_P(Windows, TakeNoBytesBeyondTheirEnd) {
  run_ranks(2, GetParam(), [](RankContext& rank) {
    Communicator comm = rank.communicator();
    constexpr size_t kBytes = 1 << 20;
    Window first = comm.allocate_window(kBytes, "first").value();
    Window second = comm.allocate_window(kBytes, "second").value();
    for (Window* window : {&first, &second}) {
      fill_elements(window->data(), test_seed(), rank.rank(), 0, kBytes, DType::kU8);
      std::vector<std::byte> full(2 * kBytes), expected(kBytes);
      const size_t last = kBytes - 200'000;
      for (const size_t begin : {size_t{0}, size_t{1}, last}) {
        const size_t count = kBytes - std::max(begin, last - 7);
        ASSERT_TRUE(
            outcome(comm.all_gather({window->data() + begin, full.data(), count, DType::kU8}, StreamRef::caller()))
                .ok());
        for (Rank r = 0; r < 2; ++r) {
          fill_elements(expected.data(), test_seed(), r, begin, count, DType::kU8);
          EXPECT_EQ(std::memcmp(full.data() + static_cast<size_t>(r) * count, expected.data(), count), 0);
        }
      }
    }
  });
}

TEST_P(Windows, OutliveTheirCommunicator) {
  run_ranks(2, GetParam(), [](RankContext& rank) {
    std::optional<Window> window;
    {
      Communicator comm = rank.communicator();
      window = comm.allocate_window(100'000, "long-lived").value();
      std::memset(window->data(), 42, 100'000);
      ASSERT_TRUE(outcome(comm.barrier(StreamRef::caller())).ok());
    }
    EXPECT_EQ(window->data()[99'999], std::byte{42});
    std::memset(window->data(), 43, 100'000);
    Communicator next = rank.communicator();
    // To another communicator it is ordinary memory.
    std::vector<std::byte> full(200'000);
    ASSERT_TRUE(outcome(next.all_gather({window->data(), full.data(), 100'000, DType::kU8}, StreamRef::caller())).ok());
    EXPECT_EQ(full[0], std::byte{43});
    EXPECT_EQ(full[199'999], std::byte{43});
    window.reset();
    EXPECT_TRUE(outcome(next.barrier(StreamRef::caller())).ok());
  });
}

TEST_P(Windows, LargerThanMemoryAreRefusedOnAllRanks) {
  run_ranks(3, GetParam(), [](RankContext& rank) {
    Communicator comm = rank.communicator();
    const size_t sizes[] = {size_t{1} << 46, SIZE_MAX, SIZE_MAX / 2, SIZE_MAX - 4095};
    for (const size_t bytes : sizes) {
      SCOPED_TRACE(bytes);
      const Status status = comm.allocate_window(bytes, "too large").status();
      EXPECT_TRUE(failed_with(status, Code::kOutOfMemory, {"too large", "needs", "available"}));
      // One rank asks for too much, the others for a little: all are told.
      const Status one = comm.allocate_window(rank.rank() == 1 ? bytes : 10, "one too large").status();
      EXPECT_TRUE(failed_with(one, Code::kOutOfMemory, {"one too large", "needs", "available"}));
    }
    // The communicator is none the worse for it.
    EXPECT_TRUE(comm.health().ok()) << comm.health().to_string();
    EXPECT_TRUE(comm.allocate_window(4096, "enough").ok());
    EXPECT_TRUE(outcome(comm.barrier(StreamRef::caller())).ok());
  });
}

// Each rank's part fits, all together do not.
TEST_P(Windows, LargerThanMemoryTogetherAreRefused) {
  run_ranks(4, GetParam(), [](RankContext& rank) {
    Communicator comm = rank.communicator();
    std::ifstream file("/proc/meminfo");
    std::string word;
    size_t kib = 0;
    while (file >> word && word != "MemAvailable:") {
    }
    file >> kib;
    ASSERT_GT(kib, 0u);
    const Status status = comm.allocate_window(kib / 10 * 3 * 1024, "a third").status();
    EXPECT_TRUE(failed_with(status, Code::kOutOfMemory, {"a third", "4 ranks"}));
  });
}

TEST_P(Windows, LabelsMayBeLong) {
  run_ranks(2, GetParam(), [](RankContext& rank) {
    Communicator comm = rank.communicator();
    const std::string label(100'000, 'w');
    Result<Window> window = comm.allocate_window(4096, label);
    ASSERT_TRUE(window.ok()) << window.status().to_string().substr(0, 200);
    const Status refused = comm.allocate_window(size_t{1} << 46, label).status();
    EXPECT_EQ(refused.code(), Code::kOutOfMemory);
    EXPECT_TRUE(outcome(comm.barrier(StreamRef::caller())).ok());
  });
}

TEST_P(Windows, MayBeMemoryOfTheCallers) {
  run_ranks(3, GetParam(), [](RankContext& rank) {
    Communicator comm = rank.communicator();
    std::vector<float> memory(100'000, static_cast<float>(rank.rank() + 1)), out(100'000);
    Result<Window> window = comm.register_window(memory.data(), memory.size() * sizeof(float), "mine");
    ASSERT_TRUE(window.ok()) << window.status().to_string();
    EXPECT_EQ(window->data(), reinterpret_cast<std::byte*>(memory.data()));
    EXPECT_EQ(window->size_bytes(), memory.size() * sizeof(float));
    EXPECT_FALSE(window->owns_memory());
    EXPECT_EQ(window->label(), "mine");
    ASSERT_TRUE(outcome(comm.all_reduce({memory.data(), out.data(), 100'000, DType::kF32}, StreamRef::caller())).ok());
    EXPECT_EQ(out[99'999], 6.0f);
    { const Window gone(std::move(*window)); }
    EXPECT_EQ(memory[5], static_cast<float>(rank.rank() + 1));
    // Null is refused on the rank that passes it, before a peer is involved.
    if (rank.rank() == 2) {
      EXPECT_TRUE(failed_with(comm.register_window(nullptr, 10, "null").status(), Code::kInvalidArgument, {"null"}));
    }
    EXPECT_TRUE(comm.register_window(nullptr, 0, "nothing").ok());
    EXPECT_TRUE(outcome(comm.barrier(StreamRef::caller())).ok());
  });
}

TEST_P(Windows, BucketsCheckTheirLayout) {
  run_ranks(2, GetParam(), [](RankContext& rank) {
    Communicator comm = rank.communicator();
    const auto create = [&](BucketLayout layout) { return Bucket::create(comm, layout, "b").status().code(); };
    if (rank.rank() == 0) {  // the others are not involved
      EXPECT_EQ(create({DType::kF32, 10, 21}), Code::kInvalidArgument);
      EXPECT_EQ(create({DType::kF32, SIZE_MAX / 2 + 1, 0}), Code::kInvalidArgument);
      EXPECT_EQ(create({DType::kF64, SIZE_MAX / 8, SIZE_MAX / 8 * 2}), Code::kInvalidArgument);
      EXPECT_EQ(create({static_cast<DType>(77), 10, 20}), Code::kInvalidArgument);
    }
    Result<Bucket> empty = Bucket::create(comm, {DType::kF32, 0, 0}, "empty");
    ASSERT_TRUE(empty.ok()) << empty.status().to_string();
    EXPECT_TRUE(outcome(comm.all_gather(*empty, StreamRef::caller())).ok());
    EXPECT_TRUE(outcome(comm.reduce_scatter(*empty, ReduceOp::kMax, StreamRef::caller())).ok());
  });
}

// A bucket keeps the calls of the communicator that it was last used with, and of no other.
TEST_P(Windows, BucketsAreUsedByTheCommunicatorThatIsCalled) {
  run_ranks(2, GetParam(), [](RankContext& rank) {
    std::optional<Communicator> first = rank.communicator(), second = rank.communicator();
    Bucket bucket = Bucket::create(*first, {DType::kI32, 3, 6}, "b").value();
    const auto use = [&](Communicator& comm, Communicator& other) {
      const uint64_t before = comm.traffic().operations, before_of_other = other.traffic().operations;
      std::fill_n(reinterpret_cast<int32_t*>(bucket.shard()), 3, rank.rank() + 1);
      ASSERT_TRUE(outcome(comm.all_gather(bucket, StreamRef::caller())).ok());
      EXPECT_EQ(reinterpret_cast<const int32_t*>(bucket.full())[0], 1);
      EXPECT_EQ(reinterpret_cast<const int32_t*>(bucket.full())[5], 2);
      ASSERT_TRUE(outcome(comm.reduce_scatter(bucket, ReduceOp::kSum, StreamRef::caller())).ok());
      EXPECT_EQ(*reinterpret_cast<const int32_t*>(bucket.shard()), 2 * (rank.rank() + 1));
      EXPECT_EQ(comm.traffic().operations, before + 2);
      EXPECT_EQ(other.traffic().operations, before_of_other);
    };
    for (int again = 0; again < 2; ++again) {
      ASSERT_NO_FATAL_FAILURE(use(*first, *second));
      ASSERT_NO_FATAL_FAILURE(use(*second, *first));
    }
    ASSERT_NO_FATAL_FAILURE(use(*first, *second));
    if (rank.rank() == 0) first->abort("done with");
    while (first->health().ok()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    ASSERT_NO_FATAL_FAILURE(use(*second, *first));
  });
}

INSTANTIATE_TEST_SUITE_P(Modes, Windows, ::testing::ValuesIn(rank_modes()),
                         [](const auto& info) { return std::string(name(info.param)); });

}  // namespace
}  // namespace shardcomm::testing
