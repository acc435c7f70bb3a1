// Which message meets which receive, and when buffers are their owners' again. Ranks are threads where ThreadSanitizer
// is to see both sides.
#include "tests/support/failure.h"

namespace shardcomm::testing {
namespace {

constexpr size_t kSmall = 5, kLarge = 30'000;  // elements: buffered, and read in place

void expect_ok(const Result<Work>& work) {
  const Status status = outcome(work);
  if (!status.ok()) throw std::runtime_error(status.to_string());
}

Result<Work> send(Communicator& comm, Rank peer, int32_t tag, const std::vector<uint32_t>& values,
                  StreamRef stream = StreamRef::caller()) {
  return comm.send({.data = values.data(), .count = values.size(), .dtype = DType::kU32, .peer = peer, .tag = tag},
                   stream);
}

Result<Work> receive(Communicator& comm, Rank peer, int32_t tag, std::vector<uint32_t>& values,
                     StreamRef stream = StreamRef::caller()) {
  return comm.recv({.data = values.data(), .count = values.size(), .dtype = DType::kU32, .peer = peer, .tag = tag},
                   stream);
}

class MessageOrder : public ::testing::TestWithParam<std::tuple<RankMode, const char*>> {
 protected:
  template <class Body>
  void on_ranks(int ranks, const Body& body) {
    const auto [mode, options] = GetParam();
    run_ranks(ranks, mode, [&, options = options](RankContext& rank) {
      Communicator comm = rank.communicator(options);
      body(comm);
    });
  }
};

TEST_P(MessageOrder, EqualTagsMeetInTheOrderSent) {
  on_ranks(2, [](Communicator& comm) {
    for (const size_t count : {kSmall, kLarge}) {
      std::vector<uint32_t> values(count);
      for (uint32_t i = 0; i < 50; ++i) {
        if (comm.rank() == 0) {
          std::fill(values.begin(), values.end(), i);
          expect_ok(send(comm, 1, 9, values));
        } else {
          expect_ok(receive(comm, 0, 9, values));
          ASSERT_EQ(values.front(), i);
          ASSERT_EQ(values.back(), i);
        }
      }
    }
  });
}

TEST_P(MessageOrder, TagsMayBeReceivedInAnyOrder) {
  on_ranks(2, [](Communicator& comm) {
    constexpr int32_t kTags = 12;  // fewer than there is room for without a receive
    if (comm.rank() == 0) {
      for (int32_t tag = 0; tag < kTags; ++tag) {
        const std::vector<uint32_t> values(kSmall, static_cast<uint32_t>(tag));
        expect_ok(send(comm, 1, tag, values));  // buffered
      }
    } else {
      for (int32_t tag = kTags - 1; tag >= 0; --tag) {
        std::vector<uint32_t> values(kSmall);
        expect_ok(receive(comm, 0, tag, values));
        ASSERT_EQ(values.back(), static_cast<uint32_t>(tag));
      }
    }
  });
}

TEST_P(MessageOrder, OneCallMatchesItsEqualTagsInTheOrderGiven) {
  on_ranks(2, [](Communicator& comm) {
    const Rank peer = 1 - comm.rank();
    for (const size_t count : {kSmall, kLarge}) {
      constexpr size_t kMessages = 150;  // more than tickets and slots
      std::vector<std::vector<uint32_t>> in(kMessages), out(kMessages);
      std::vector<SendArgs> sends;
      std::vector<RecvArgs> receives;
      for (size_t i = 0; i < kMessages; ++i) {
        in[i].assign(count, static_cast<uint32_t>(i) + 1000 * static_cast<uint32_t>(comm.rank()));
        out[i].resize(count);
        sends.push_back({in[i].data(), count, DType::kU32, peer, static_cast<int32_t>(i % 3)});
        receives.push_back({out[i].data(), count, DType::kU32, peer, static_cast<int32_t>(i % 3)});
      }
      expect_ok(comm.send_recv_many(sends, receives, StreamRef::caller()));
      for (size_t i = 0; i < kMessages; ++i)
        ASSERT_EQ(out[i].back(), static_cast<uint32_t>(i) + 1000 * static_cast<uint32_t>(peer));
    }
  });
}

TEST_P(MessageOrder, BothDirectionsGoOnAtOnceOnTwoStreams) {
  on_ranks(2, [](Communicator& comm) {
    HostStream out = make_stream(), in = make_stream();
    const Rank peer = 1 - comm.rank();
    for (uint32_t i = 0; i < 20; ++i) {
      std::vector<uint32_t> mine(kLarge, i + static_cast<uint32_t>(comm.rank())), theirs(kLarge);
      const Result<Work> sent = send(comm, peer, 1, mine, out.ref()),
                         received = receive(comm, peer, 1, theirs, in.ref());
      expect_ok(sent);
      expect_ok(received);
      ASSERT_EQ(theirs.back(), i + static_cast<uint32_t>(peer));
      std::fill(mine.begin(), mine.end(), 0u);  // it is this rank's again
    }
  });
}

TEST_P(MessageOrder, ARankSendsToItself) {
  on_ranks(2, [](Communicator& comm) {
    for (const size_t count : {kSmall, kLarge}) {
      const std::vector<uint32_t> mine(count, 7);
      std::vector<uint32_t> again(count);
      const SendArgs send{mine.data(), count, DType::kU32, comm.rank(), 2};
      const RecvArgs receive{again.data(), count, DType::kU32, comm.rank(), 2};
      expect_ok(comm.send_recv_many({&send, 1}, {&receive, 1}, StreamRef::caller()));
      ASSERT_EQ(again, mine);
    }
  });
}

// Ranks in a circle each send more small messages than their neighbour has room for, and receive afterwards.
TEST_P(MessageOrder, AFullMailboxIsEmptiedByARankThatItselfWaitsForRoom) {
  on_ranks(3, [](Communicator& comm) {
    const Rank right = (comm.rank() + 1) % 3, left = (comm.rank() + 2) % 3;
    for (uint32_t i = 0; i < 100; ++i) expect_ok(send(comm, right, 3, std::vector<uint32_t>(kSmall, i)));
    for (uint32_t i = 0; i < 100; ++i) {
      std::vector<uint32_t> values(kSmall);
      expect_ok(receive(comm, left, 3, values));
      ASSERT_EQ(values.back(), i);
    }
  });
}

// A rank that looked again only now and then would take seconds.
TEST_P(MessageOrder, SleepersHearAtOnceOfRoomAndOfMessages) {
  on_ranks(2, [](Communicator& comm) {
    constexpr uint32_t kMessages = 4000;
    const Stopwatch watch;
    for (uint32_t i = 0; i < kMessages; ++i) {
      std::vector<uint32_t> values(kSmall, i);
      if (comm.rank() == 0) {
        expect_ok(send(comm, 1, 3, values));
        continue;
      }
      if (i % 64 == 0) std::this_thread::sleep_for(1ms);  // rank 0 waits for room meanwhile, asleep
      expect_ok(receive(comm, 0, 3, values));
      ASSERT_EQ(values.back(), i);
    }
    EXPECT_LT(watch.elapsed(), stretched(1500ms));
  });
}

// Several threads of each rank have tags of their own, among collectives on another.
TEST_P(MessageOrder, ThreadsOfARankSendAndReceiveBesideItsCollectives) {
  on_ranks(2, [](Communicator& comm) {
    constexpr int kThreads = 3;
    const Rank peer = 1 - comm.rank();
    std::vector<std::thread> threads;
    std::atomic<int> wrong{0};
    for (int32_t t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        std::vector<uint32_t> values(t == 0 ? kLarge : kSmall);
        for (uint32_t i = 0; i < 60; ++i) {
          const bool sends_first = (static_cast<int>(i) + comm.rank()) % 2 == 0;
          const uint32_t expected = i * 10 + static_cast<uint32_t>(t);
          if (sends_first) {
            std::fill(values.begin(), values.end(), expected);
            if (!outcome(send(comm, peer, t, values)).ok()) ++wrong;
          } else if (!outcome(receive(comm, peer, t, values)).ok() || values.back() != expected) {
            ++wrong;
          }
        }
      });
    }
    for (uint32_t i = 0; i < 60; ++i) {
      uint32_t in = i, out = 0;
      expect_ok(comm.all_reduce({&in, &out, 1, DType::kU32}, StreamRef::caller()));
      EXPECT_EQ(out, 2 * i);
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(wrong.load(), 0);
  });
}

TEST_P(MessageOrder, TrafficCountsWhatWasSent) {
  on_ranks(2, [](Communicator& comm) {
    std::vector<uint32_t> values(kLarge, 1);
    expect_ok(comm.rank() == 0 ? send(comm, 1, 0, values) : receive(comm, 0, 0, values));
    const TrafficCounters traffic = comm.traffic();
    EXPECT_EQ(traffic.operations, 1u);
    EXPECT_EQ(comm.rank() == 0 ? traffic.bytes_sent : traffic.bytes_received, kLarge * 4);
    EXPECT_EQ(comm.rank() == 0 ? traffic.bytes_received : traffic.bytes_sent, 0u);
  });
}

INSTANTIATE_TEST_SUITE_P(Modes, MessageOrder,
                         ::testing::Combine(::testing::ValuesIn(rank_modes()),
                                            ::testing::Values("memory_access=attach", "memory_access=staging",
                                                              "spin_us=0")));

}  // namespace
}  // namespace shardcomm::testing
