// A second transport and a second control, which share no memory, under the core and the collectives as they are: what
// either kind of implementation must fulfil, and the proof that nothing above the doors knows which one it has.
#include <gtest/gtest.h>

#include <algorithm>

#include "bootstrap/bootstrap.h"
#include "core/core.h"
#include "core/window_impl.h"
#include "tests/bootstrap/meeting.h"
#include "tests/support/reference.h"
#include "tests/transport/queue_control.h"
#include "tests/transport/queue_transport.h"

namespace shardcomm {
namespace {

using namespace shardcomm::testing;

constexpr size_t kCounts[] = {0, 1, 17, 4099, 70'000};

Options options_of(std::string algorithm) {
  Options options = quick_options();
  options.timeout = 10s;
  options.algorithm = std::move(algorithm);
  return options;
}

std::unique_ptr<Fabric> fabric_over_queues(ControlNetwork& control, ByteNetwork& bytes, Rank rank, int size) {
  auto transport = std::make_unique<QueueTransport>(bytes);
  (void)transport->connect(rank, std::vector<Card>(static_cast<size_t>(size)), in(1s));
  std::vector<uint8_t> same_process(static_cast<size_t>(size), 0);
  same_process[static_cast<size_t>(rank)] = 1;
  auto fabric = std::make_unique<Fabric>();
  fabric->rank = rank;
  fabric->size = size;
  fabric->attach = Attach::kGathersAndReductions;
  fabric->transport = std::move(transport);
  fabric->windows = std::make_unique<Windows>(std::move(same_process));
  fabric->control = std::make_unique<QueueControl>(control, rank);
  return fabric;
}

std::shared_ptr<Core> core_over_queues(ControlNetwork& control, ByteNetwork& bytes, Rank rank, const Options& options) {
  const int size = control.size();
  const Topology topology = Topology::single_node(size, size);
  std::vector<Rank> order;
  for (Rank r = 0; r < size; ++r) order.push_back((rank + r) % size);
  return std::make_shared<Core>(
      Communicator::Group{rank, size, {}}, options,
      Connection{
          .fabric = fabric_over_queues(control, bytes, rank, size),
          .topology = topology,
          .chooser = Chooser::create({topology, MachineModel()}, TransportKind::kMapped, options.algorithm).value(),
          .flight = FlightRecorder::create({.rank = rank, .size = size}, options).value(),
          .copy_threads = 1,
          .reading_order = order});
}

Status run(Core& core, const Call& call, const Item& item, StreamRef stream = StreamRef::caller()) {
  Operation operation(call, {&item, 1}, "doors");
  SHARDCOMM_TRY_ASSIGN(const Work work, core.submit(operation, stream));
  return work.synchronize(in(20s));
}

void expect_gathered(Core& core, const Reference& reference, DType dtype, size_t count) {
  const auto ranks = static_cast<size_t>(core.self.size);
  const size_t bytes = count * size_of(dtype);
  std::vector<std::byte> full(bytes * ranks, std::byte{0xa5});
  const Item item{reference.input(dtype, core.self.rank), full.data(), count, dtype, ReduceOp::kSum};
  const Status status = run(core, {.collective = Collective::kAllGather}, item);
  ASSERT_TRUE(status.ok()) << status.to_string();
  for (size_t r = 0; r < ranks; ++r) {
    EXPECT_EQ(first_difference(full.data() + r * bytes, reference.input(dtype, static_cast<Rank>(r)), count, dtype),
              std::nullopt)
        << name(dtype) << " " << count << " of rank " << r;
  }
}

void expect_reduced(Core& core, const Reference& reference, DType dtype, size_t count) {
  const size_t first = count * static_cast<size_t>(core.self.rank);
  std::vector<std::byte> shard(count * size_of(dtype), std::byte{0xa5});
  const Item item{reference.input(dtype, core.self.rank), shard.data(), count, dtype, ReduceOp::kSum};
  const Status status = run(core, {.collective = Collective::kReduceScatter}, item);
  ASSERT_TRUE(status.ok()) << status.to_string();
  EXPECT_EQ(first_difference(shard.data(), reference.reduced(dtype, ReduceOp::kSum, first), count, dtype), std::nullopt)
      << name(dtype) << " " << count;
}

class Doors : public ::testing::TestWithParam<std::tuple<int, std::string>> {
 protected:
  int ranks() const { return std::get<0>(GetParam()); }
  Options options() const { return options_of(std::get<1>(GetParam())); }
};

TEST_P(Doors, GathersAndReducesOverASecondControlAndTransport) {
  const Reference reference(test_seed(), ranks(), kCounts[4] * static_cast<size_t>(ranks()), 0);
  ControlNetwork control(ranks());
  ByteNetwork bytes(ranks());
  as_threads(ranks(), [&](Rank rank) {
    const auto core = core_over_queues(control, bytes, rank, options());
    for (const size_t count : kCounts) {
      for (const DType dtype : {DType::kU8, DType::kI32, DType::kBF16, DType::kF32, DType::kF64}) {
        expect_gathered(*core, reference, dtype, count);
        expect_reduced(*core, reference, dtype, count);
      }
    }
    const auto blobs = core->exchange("blob of " + std::to_string(rank), "who is here");
    ASSERT_TRUE(blobs.ok()) << blobs.status().to_string();
    for (Rank r = 0; r < ranks(); ++r)
      EXPECT_EQ((*blobs.operator->())[static_cast<size_t>(r)], "blob of " + std::to_string(r));
  });
  EXPECT_EQ(bytes.bytes_moved() > 0, ranks() > 1) << "large buffers are read from their owners";
}

TEST_P(Doors, RunsOperationsOfAHostStreamInOrder) {
  const Reference reference(test_seed(), ranks(), 4099 * static_cast<size_t>(ranks()), 0);
  ControlNetwork control(ranks());
  ByteNetwork bytes(ranks());
  as_threads(ranks(), [&](Rank rank) {
    const auto core = core_over_queues(control, bytes, rank, options());
    const HostStream stream = HostStream::create("doors").value();
    std::vector<std::byte> full(4099 * static_cast<size_t>(ranks()));
    const Item item{reference.input(DType::kU8, rank), full.data(), 4099, DType::kU8, ReduceOp::kSum};
    Work last;
    for (int i = 0; i < 20; ++i) {
      Operation operation({.collective = Collective::kAllGather}, {&item, 1}, "in order");
      auto work = core->submit(operation, stream.ref());
      ASSERT_TRUE(work.ok()) << work.status().to_string();
      last = *work;
    }
    EXPECT_TRUE(last.synchronize(in(20s)).ok());
    expect_reduced(*core, reference, DType::kF32, 100);
  });
}

// At the end of an operation a rank waits for those that read its memory, and for no other.
TEST(DoorsOfRoots, WaitOnlyForReaders) {
  constexpr int kRanks = 3;
  constexpr Rank kRoot = 1;
  constexpr size_t kCount = 9'000;
  ControlNetwork control(kRanks);
  ByteNetwork bytes(kRanks);
  as_threads(kRanks, [&](Rank rank) {
    const auto core = core_over_queues(control, bytes, rank, options_of("direct"));
    auto& queues = static_cast<QueueControl&>(*core->fabric->control);
    std::vector<float> in(kRanks * kCount, 1.0F), out(kRanks * kCount);
    const Item item{reinterpret_cast<std::byte*>(in.data()), reinterpret_cast<std::byte*>(out.data()), kCount,
                    DType::kF32, ReduceOp::kSum};
    const auto awaited_in = [&](Collective collective, Rank root) {
      const Status status = run(*core, {.collective = collective, .root_or_items = root}, item);
      EXPECT_TRUE(status.ok()) << status.to_string();
      std::vector<Rank> awaited = queues.take_awaited();
      std::ranges::sort(awaited);
      return awaited;
    };
    std::vector<Rank> peers;
    for (Rank r = 0; r < kRanks; ++r) {
      if (r != rank) peers.push_back(r);
    }
    const std::vector<Rank> none, only_root = {kRoot};
    EXPECT_EQ(awaited_in(Collective::kAllGather, 0), peers);
    for (const Collective to_root : {Collective::kGather, Collective::kReduce})
      EXPECT_EQ(awaited_in(to_root, kRoot), rank == kRoot ? none : only_root) << name(to_root);
    for (const Collective from_root : {Collective::kScatter, Collective::kBroadcast})
      EXPECT_EQ(awaited_in(from_root, kRoot), rank == kRoot ? peers : none) << name(from_root);
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, Doors, ::testing::Combine(::testing::Values(1, 2, 5), ::testing::Values("", "direct")));

TEST(SecondControl, NamesBothSidesOfAMismatch) {
  ControlNetwork control(3);
  ByteNetwork bytes(3);
  std::vector<std::string> texts(3);
  as_threads(3, [&](Rank rank) {
    const auto core = core_over_queues(control, bytes, rank, options_of(""));
    std::vector<float> in(8), out(24);
    const Item item{reinterpret_cast<std::byte*>(in.data()), reinterpret_cast<std::byte*>(out.data()),
                    rank == 1 ? size_t{3} : size_t{8}, DType::kF32, ReduceOp::kSum};
    const Status status = run(*core, {.collective = Collective::kAllGather}, item);
    EXPECT_EQ(status.code(), Code::kFailedPrecondition);
    EXPECT_TEXT(status, "ranks 0,2 all_gather f32 8 'doors'; rank 1 all_gather f32 3 'doors'");
    EXPECT_EQ(core->health.check().code(), Code::kFailedPrecondition);
  });
}

TEST(SecondControl, SaysWhereAgreementsDifferThatReadAlike) {
  ControlNetwork control(2);
  ByteNetwork bytes(2);
  as_threads(2, [&](Rank rank) {
    const auto core = core_over_queues(control, bytes, rank, options_of(""));
    const auto blobs = core->exchange("", "a label longer than what messages show " + std::to_string(rank));
    EXPECT_TEXT(blobs.status(), "their labels differ further on");
  });
}

TEST(SecondControl, NamesTheRankThatDoesNotCome) {
  ControlNetwork control(2);
  ByteNetwork bytes(2);
  Options options = options_of("");
  options.timeout = 300ms;
  const auto late = core_over_queues(control, bytes, 1, options);
  const auto core = core_over_queues(control, bytes, 0, options);
  Operation operation({.collective = Collective::kBarrier}, {}, "alone");
  const Status status = core->submit(operation, StreamRef::caller()).status();
  EXPECT_EQ(status.code(), Code::kTimedOut);
  EXPECT_TEXT(status, "waiting for rank 1 to arrive");
}

TEST(SecondControl, EndsTheWaitsOfAllRanksWhenOneAborts) {
  ControlNetwork control(2);
  ByteNetwork bytes(2);
  as_threads(2, [&](Rank rank) {
    const auto core = core_over_queues(control, bytes, rank, options_of(""));
    if (rank == 1) return core->health.abort(Status(Code::kAborted, "rank 1 has had enough"));
    Operation operation({.collective = Collective::kBarrier}, {}, "never");
    const Status status = core->submit(operation, StreamRef::caller()).status();
    EXPECT_EQ(status.code(), Code::kAborted);
    EXPECT_TEXT(status, "had enough");
  });
}

// --- a transport as a row, found by discovery like those built in ---

ByteNetwork* network_of_row = nullptr;
const TransportEntry kRows[] = {
    {.name = "none",
     .kind = TransportKind::kMapped,
     .probe = [](Device) { return Status(Code::kUnavailable, "never here"); },
     .open = nullptr},
    {.name = "queue",
     .kind = TransportKind::kMapped,
     .probe = [](Device) { return Status(); },
     .open = [](Device, const Options&) -> Result<std::unique_ptr<Transport>> {
       return std::unique_ptr<Transport>(std::make_unique<QueueTransport>(*network_of_row));
     }},
};

class SecondTransport : public ::testing::Test {
 protected:
  static constexpr int kRanks = 3;
  SecondTransport() { network_of_row = &network_; }

  // Runs `function` on each rank of a communicator that discovery has connected.
  void on_ranks(const std::function<void(Core&)>& function) {
    as_threads(kRanks, [&](Rank rank) {
      const auto store = join_or_fail("local://second-transport", rank, kRanks, options_of(""));
      const Exchange exchange = [&](std::string_view step, std::string_view blob) {
        return bootstrap::exchange(*store, step, rank, kRanks, blob, in(10s));
      };
      const Communicator::Group self{rank, kRanks, {}};
      auto connection = connect_ranks(self, options_of(""), in(10s), {.exchange = exchange, .transports = kRows});
      ASSERT_TRUE(connection.ok()) << connection.status().to_string();
      function(*std::make_shared<Core>(self, options_of(""), std::move(connection).value()));
    });
  }
  ByteNetwork network_{kRanks};
};

TEST_F(SecondTransport, IsARowThatDiscoveryFinds) {
  const Reference reference(test_seed(), kRanks, 70'000 * kRanks, 0);
  on_ranks([&](Core& core) {
    EXPECT_EQ(core.fabric->transport->name(), "queue");
    EXPECT_EQ(core.topology.node_of, std::vector<int>(kRanks, 0));
    core.fabric->attach = Attach::kGathersAndReductions;
    for (const size_t count : kCounts) {
      expect_gathered(core, reference, DType::kF32, count);
      expect_reduced(core, reference, DType::kF32, count);
    }
  });
  EXPECT_GT(network_.bytes_moved(), 0u);
}

TEST_F(SecondTransport, EnrollsRegisteredMemory) {
  on_ranks([&](Core& core) {
    std::vector<std::byte> memory(4096);
    const auto window = enroll_memory(core, memory, "mine");
    ASSERT_TRUE(window.ok()) << window.status().to_string();
    EXPECT_NE((*window.operator->())->registration, nullptr);
    // The transport refuses this size on rank 1; all ranks get the reason.
    const auto refused = enroll_memory(core, std::span(memory).first(core.self.rank == 1 ? 13 : 14), "odd");
    EXPECT_EQ(refused.status().code(), Code::kOutOfMemory);
    EXPECT_TEXT(refused.status(), "rank 1: 13 bytes cannot be enrolled");
  });
}

TEST(PairTransports, ServeAPairByTheFirstRowThatBothEndsReach) {
  // Ranks 0 and 1 map each other (row 0), so do 2 and 3; row 2 crosses between them, but 1 does not reach 3.
  const std::vector<Reach> reach = {{5, 5, 4, 4}, {5, 5, 4, 0}, {4, 4, 5, 5}, {4, 4, 5, 5}};
  const PairTransports pairs(reach);
  EXPECT_EQ(pairs.row(0, 1), 0);
  EXPECT_EQ(pairs.row(0, 2), 2);
  EXPECT_EQ(pairs.row(2, 0), 2);
  EXPECT_EQ(pairs.row(1, 3), PairTransports::kNone);
  EXPECT_EQ(pairs.row(3, 1), PairTransports::kNone);
  EXPECT_EQ(pairs.nodes(1), (std::vector{0, 0, 1, 1}));
  EXPECT_EQ(pairs.nodes(2), (std::vector{0, 1, 2, 3}));
}

TEST(PairTransports, MakeNoNodeOfRanksThatDoNotAllMapEachOther) {
  // 0 and 1 map each other, so do 1 and 2, but 0 and 2 do not.
  EXPECT_EQ(PairTransports({{1, 1, 0}, {1, 1, 1}, {0, 1, 1}}).nodes(1), (std::vector{0, 0, 1}));
}

}  // namespace
}  // namespace shardcomm
