// The directory of published segments, of two ranks in one process: what is published, met, withdrawn, and when peers
// let go of it. The transport maps nothing; it counts.
#include "transport/segment_directory.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <set>
#include <thread>

#include "transport/transport.h"

namespace shardcomm {
namespace {

// A card is the segment's own address, so that it is "mapped" there.
class CountingTransport final : public MappedTransport {
 public:
  std::string_view name() const noexcept override { return "counting"; }
  TransportKind kind() const noexcept override { return TransportKind::kMapped; }
  Result<Card> card() override { return Card(); }
  std::vector<Status> connect(Rank, std::span<const Card> cards, Deadline) override {
    return std::vector<Status>(cards.size());
  }
  std::vector<Rank> ended_peers() override { return {}; }
  Result<Registration> enroll(const Allocation&) override { return Registration(); }
  Result<Card> share(const Allocation& memory) override {
    return Card(std::string(card_padding, 'x') + std::to_string(reinterpret_cast<uintptr_t>(memory.base)));
  }
  Result<MappedMemory> map_from(Rank, const Card& shared) override {
    ++maps;
    if (refuses) return Status(Code::kUnavailable, "no room for it");
    auto* const base = reinterpret_cast<std::byte*>(std::stoull(shared));
    ++mapped;
    return MappedMemory{base, std::shared_ptr<void>(base, [this](void*) { --mapped; })};
  }
  bool same_process(Rank) const noexcept override { return false; }
  Status can_attach(Rank) const override { return {}; }
  Status read(Rank, void*, uint64_t, size_t) override { return {}; }

  std::atomic<int> maps{0}, mapped{0};
  std::atomic<bool> refuses{false};
  size_t card_padding = 0;
};

class Directory : public ::testing::Test {
 protected:
  // Rank 0 publishes and rank 1 reads.
  Directory() : owner_(0, transport_, tables()), reader_(1, transport_, tables()) {}

  PeerMapping tables() { return {{memory_[0].bytes, memory_[1].bytes}, {nullptr, nullptr}}; }
  uint32_t publish(size_t segment) { return owner_.publish({.base = &bytes_[segment], .bytes = 1}).value(); }
  static uint64_t address(const std::byte* byte) { return reinterpret_cast<uint64_t>(byte); }
  // Where the reader finds that byte of rank 0, as an operation of its own.
  const std::byte* read(uint32_t id, size_t segment) {
    reader_.enter();
    const std::byte* const found = reader_.locate(0, id, address(&bytes_[segment]));
    reader_.leave();
    return found;
  }

  struct alignas(64) Table {
    std::byte bytes[SegmentDirectory::kBytes] = {};
  };
  std::unique_ptr<Table[]> memory_ = std::make_unique<Table[]>(2);
  std::array<std::byte, kMostPublished + 1> bytes_{};
  CountingTransport transport_;
  SegmentDirectory owner_, reader_;
};

TEST_F(Directory, MapsASegmentWhenItIsFirstMet) {
  const uint32_t id = publish(3);
  EXPECT_TRUE(SegmentDirectory::is_published(id));
  EXPECT_EQ(transport_.maps, 0);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(read(id, 3), &bytes_[3]);
  EXPECT_EQ(transport_.maps, 1);
  EXPECT_TRUE(reader_.why_not(0).ok());
}

TEST_F(Directory, IdsAreNeverThoseOfWindows) {
  EXPECT_FALSE(SegmentDirectory::is_published(0));
  EXPECT_FALSE(SegmentDirectory::is_published(UINT32_MAX));  // kNoWindow
  EXPECT_FALSE(SegmentDirectory::is_published(INT32_MAX));
}

TEST_F(Directory, PublishesUpToItsLimit) {
  std::set<uint32_t> ids;
  for (size_t i = 0; i < kMostPublished; ++i) ids.insert(publish(i));
  EXPECT_EQ(ids.size(), kMostPublished);
  const Status full = owner_.publish({.base = &bytes_[kMostPublished], .bytes = 1}).status();
  EXPECT_EQ(full.code(), Code::kOutOfMemory);
  EXPECT_NE(full.message().find("1024"), std::string::npos) << full.message();
  owner_.withdraw(*ids.begin());
  const uint32_t again = publish(kMostPublished);
  EXPECT_TRUE(ids.insert(again).second) << "an id is never given twice";
  EXPECT_EQ(read(again, kMostPublished), &bytes_[kMostPublished]);
}

TEST_F(Directory, NeverTakesANewSegmentForAnOldOne) {
  const uint32_t old = publish(0);
  EXPECT_EQ(read(old, 0), &bytes_[0]);
  owner_.withdraw(old);
  const uint32_t fresh = publish(1);  // in the same entry
  EXPECT_NE(old, fresh);
  EXPECT_EQ(read(fresh, 1), &bytes_[1]);
  EXPECT_EQ(read(old, 0), nullptr);
  EXPECT_EQ(reader_.why_not(0).code(), Code::kFailedPrecondition);
  EXPECT_EQ(read(fresh, 1), &bytes_[1]);
  EXPECT_EQ(transport_.mapped, 1);
  EXPECT_EQ(transport_.maps, 2);
}

TEST_F(Directory, LetsGoOfWhatIsWithdrawn) {
  std::vector<uint32_t> ids;
  for (size_t i = 0; i < 5; ++i) ids.push_back(publish(i));
  for (size_t i = 0; i < 5; ++i) EXPECT_EQ(read(ids[i], i), &bytes_[i]);
  EXPECT_EQ(transport_.mapped, 5);
  for (size_t i = 0; i < 4; ++i) owner_.withdraw(ids[i]);
  EXPECT_EQ(transport_.mapped, 5);
  const uint32_t last = publish(5);
  EXPECT_EQ(read(last, 5), &bytes_[5]);  // it meets another one, and looks around
  EXPECT_EQ(transport_.mapped, 2);
  EXPECT_EQ(read(ids[4], 4), &bytes_[4]);
  EXPECT_EQ(transport_.maps, 6);
}

TEST_F(Directory, KeepsWhatAReaderMayUse) {
  const uint32_t first = publish(0);
  reader_.enter();
  EXPECT_EQ(reader_.locate(0, first, address(&bytes_[0])), &bytes_[0]);
  owner_.withdraw(first);  // which must not be, but a rank that failed may do so
  const uint32_t second = publish(1);
  EXPECT_EQ(read(second, 1), &bytes_[1]);  // another operation of the reader meets another segment
  EXPECT_EQ(transport_.mapped, 2);
  reader_.leave();  // the last reader
  EXPECT_EQ(transport_.mapped, 1);
}

TEST_F(Directory, RemembersWhyASegmentCannotBeMapped) {
  transport_.refuses = true;
  const uint32_t id = publish(0);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(read(id, 0), nullptr);
  EXPECT_EQ(transport_.maps, 1);  // once
  const std::string why = reader_.why_not(0).to_string();
  EXPECT_NE(why.find("rank 1 maps pool memory of rank 0"), std::string::npos) << why;
  EXPECT_NE(why.find("no room for it"), std::string::npos) << why;
  transport_.refuses = false;
  EXPECT_EQ(read(publish(1), 1), &bytes_[1]);
}

TEST_F(Directory, RefusesCardsThatAreTooLong) {
  transport_.card_padding = 200;
  EXPECT_EQ(owner_.publish({.base = &bytes_[0], .bytes = 1}).status().code(), Code::kUnsupported);
}

// A rank publishes, says so, and withdraws what its peers have done with; two operations of the peer read all the time.
TEST_F(Directory, ServesReadersWhileSegmentsComeAndGo) {
  constexpr size_t kRounds = 1000;
  std::atomic<uint32_t> offered{0};
  std::array<std::atomic<uint32_t>, 2> taken{};
  std::vector<std::thread> readers;
  for (auto& mine : taken) {
    readers.emplace_back([&, done = &mine] {
      for (uint32_t seen = 0;;) {
        const uint32_t id = offered.load(std::memory_order_acquire);
        if (id == 1) return;
        if (id == seen || id == 0) {
          std::this_thread::yield();
          continue;
        }
        reader_.enter();
        const std::byte* const found = reader_.locate(0, id, address(&bytes_[id % 7]));
        if (found != &bytes_[id % 7]) ADD_FAILURE() << id;
        if (found != nullptr && std::to_integer<uint32_t>(*found) != id % 251) ADD_FAILURE() << "other bytes of " << id;
        reader_.leave();
        done->store(seen = id, std::memory_order_release);
      }
    });
  }
  for (size_t round = 0; round < kRounds; ++round) {
    const uint32_t id = owner_.publish({.base = bytes_.data(), .bytes = 7}).value();
    bytes_[id % 7] = static_cast<std::byte>(id % 251);
    offered.store(id, std::memory_order_release);
    for (const auto& done : taken) {
      while (done.load(std::memory_order_acquire) != id) std::this_thread::yield();
    }
    owner_.withdraw(id);
  }
  offered.store(1, std::memory_order_release);
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(transport_.maps, static_cast<int>(kRounds));
  EXPECT_LE(transport_.mapped, 1);
}

}  // namespace
}  // namespace shardcomm
