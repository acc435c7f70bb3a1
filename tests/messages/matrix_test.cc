// Every byte of a message arrives, and no other is touched: element types, sizes around each way that a message can
// take, kinds of memory, groups of ranks, threads and processes.
#include <cstring>
#include <random>

#include "tests/support/failure.h"

namespace shardcomm::testing {
namespace {

enum class Memory { kOrdinary, kWindow };

struct Way {
  std::string_view name;
  Memory memory;
  const char* options;
};

void PrintTo(const Way& way, std::ostream* out) { *out << way.name; }

constexpr Way kWays[] = {
    {"window", Memory::kWindow, ""},
    {"attached", Memory::kOrdinary, "memory_access=attach"},
    {"pieces", Memory::kOrdinary, "memory_access=staging"},
    {"sleeping", Memory::kOrdinary, "memory_access=staging,spin_us=0"},
};

constexpr size_t kGuardBytes = 64;
constexpr std::byte kPoison{0xa5};
constexpr size_t kMostBytes = (1 << 20) * sizeof(double);

std::byte byte_of(Rank from, Rank to, int32_t tag, size_t i) {
  return static_cast<std::byte>(static_cast<uint32_t>(i * 2654435761u >> 13) +
                                static_cast<uint32_t>(from * 7 + to * 31) + static_cast<uint32_t>(tag));
}

// Memory of one rank, in which messages lie at odd offsets.
class Room {
 public:
  Room(Communicator& comm, Memory memory, size_t bytes) {
    if (memory == Memory::kOrdinary) {
      ordinary_.resize(bytes);
      data_ = ordinary_.data();
      return;
    }
    Result<Window> window = comm.allocate_window(bytes, "room");
    if (!window.ok()) throw std::runtime_error(window.status().to_string());
    window_.emplace(std::move(window).value());
    data_ = window_->data();
  }
  std::byte* data() const { return data_; }

 private:
  std::byte* data_ = nullptr;
  std::vector<std::byte> ordinary_;
  std::optional<Window> window_;
};

// Each rank sends to its right and receives from its left, all at once.
void shift_around(Communicator& comm, const Way& way, DType dtype, size_t count, size_t offset) {
  const Rank me = comm.rank(), right = (me + 1) % comm.size(), left = (me + comm.size() - 1) % comm.size();
  const size_t bytes = count * size_of(dtype), room_bytes = bytes + 2 * kGuardBytes;
  Room in(comm, way.memory, room_bytes), out(comm, way.memory, room_bytes);
  std::byte* const source = in.data() + offset * size_of(dtype);
  std::byte* const target = out.data() + kGuardBytes;
  for (size_t i = 0; i < bytes; ++i) source[i] = byte_of(me, right, 5, i);
  std::memset(out.data(), static_cast<int>(kPoison), room_bytes);
  const SendArgs send{.data = source, .count = count, .dtype = dtype, .peer = right, .tag = 5};
  const RecvArgs receive{.data = target, .count = count, .dtype = dtype, .peer = left, .tag = 5};
  const Status status = outcome(comm.send_recv_many({&send, 1}, {&receive, 1}, StreamRef::caller()));
  ASSERT_TRUE(status.ok()) << status.to_string();
  for (size_t i = 0; i < bytes; ++i) {
    ASSERT_EQ(target[i], byte_of(left, me, 5, i)) << name(dtype) << " x " << count << ", byte " << i;
    ASSERT_EQ(source[i], byte_of(me, right, 5, i)) << "what is sent was written, byte " << i;
  }
  for (size_t i = 0; i < kGuardBytes; ++i) {
    ASSERT_EQ(out.data()[i], kPoison);
    ASSERT_EQ(target[bytes + i], kPoison);
  }
  ASSERT_TRUE(outcome(comm.barrier(StreamRef::caller())).ok());  // windows may go
}

class MessageMatrix : public ::testing::TestWithParam<std::tuple<RankMode, int, Way>> {};

TEST_P(MessageMatrix, DeliversEveryByte) {
  const auto [mode, ranks, way] = GetParam();
  run_ranks(ranks, mode, [&, way = way](RankContext& rank) {
    Communicator comm = rank.communicator(way.options);
    for (const size_t count : {0, 1, 3, 17, 1000, 4099}) {
      for (int dtype = 0; dtype < kDTypeCount; ++dtype)
        shift_around(comm, way, static_cast<DType>(dtype), count, count % 8);
    }
    shift_around(comm, way, DType::kF64, kMostBytes / sizeof(double), 1);
    shift_around(comm, way, DType::kU8, (1 << 20) + 1, 3);
    // Around the largest messages that are buffered.
    for (const size_t count : {1023, 1024, 1025, 4095, 4096, 4097}) shift_around(comm, way, DType::kU8, count, 1);
  });
}

INSTANTIATE_TEST_SUITE_P(Ways, MessageMatrix,
                         ::testing::Combine(::testing::ValuesIn(rank_modes()), ::testing::Values(1, 2, 3, 4, 8),
                                            ::testing::ValuesIn(kWays)),
                         [](const auto& info) {
                           return std::string(name(std::get<0>(info.param))) + "_" +
                                  std::to_string(std::get<1>(info.param)) + "_" +
                                  std::string(std::get<2>(info.param).name);
                         });

class RandomMessages : public ::testing::TestWithParam<std::tuple<RankMode, Way>> {};

// All ranks draw the same list of messages; each makes its own of them at once, in an order of its own.
TEST_P(RandomMessages, AllArriveWhateverTheOrder) {
  const auto [mode, way] = GetParam();
  const auto seed = static_cast<uint32_t>(std::random_device()());
  SCOPED_TRACE("seed " + std::to_string(seed));
  run_ranks(4, mode, [&, way = way](RankContext& rank) {
    Communicator comm = rank.communicator(way.options);
    std::mt19937 draw(seed);
    struct Message {
      Rank from, to;
      int32_t tag;
      size_t bytes;
    };
    for (int round = 0; round < 4; ++round) {
      std::vector<Message> messages;
      for (int32_t i = 0; i < 200; ++i) {
        const size_t bytes = draw() % 4 == 0 ? draw() % 60'000 : draw() % 300;
        messages.push_back({static_cast<Rank>(draw() % 4), static_cast<Rank>(draw() % 4), i, bytes});
      }
      std::mt19937 own(seed + static_cast<uint32_t>(rank.rank() + round * 16));
      std::shuffle(messages.begin(), messages.end(), own);
      Room in(comm, way.memory, 60'000 * 200), out(comm, way.memory, 60'000 * 200);
      std::vector<SendArgs> sends;
      std::vector<RecvArgs> receives;
      for (const Message& message : messages) {
        const size_t offset = static_cast<size_t>(message.tag) * 60'000;
        if (message.from == rank.rank()) {
          for (size_t i = 0; i < message.bytes; ++i)
            in.data()[offset + i] = byte_of(message.from, message.to, message.tag, i);
          sends.push_back({in.data() + offset, message.bytes, DType::kU8, message.to, message.tag});
        }
        if (message.to == rank.rank())
          receives.push_back({out.data() + offset, message.bytes, DType::kU8, message.from, message.tag});
      }
      const Status status = outcome(comm.send_recv_many(sends, receives, StreamRef::caller()));
      ASSERT_TRUE(status.ok()) << status.to_string();
      for (const Message& message : messages) {
        if (message.to != rank.rank()) continue;
        const std::byte* const target = out.data() + static_cast<size_t>(message.tag) * 60'000;
        for (size_t i = 0; i < message.bytes; ++i)
          ASSERT_EQ(target[i], byte_of(message.from, message.to, message.tag, i)) << "tag " << message.tag;
      }
      ASSERT_TRUE(outcome(comm.barrier(StreamRef::caller())).ok());
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ways, RandomMessages,
                         ::testing::Combine(::testing::ValuesIn(rank_modes()), ::testing::ValuesIn(kWays)),
                         [](const auto& info) {
                           return std::string(name(std::get<0>(info.param))) + "_" +
                                  std::string(std::get<1>(info.param).name);
                         });

}  // namespace
}  // namespace shardcomm::testing
