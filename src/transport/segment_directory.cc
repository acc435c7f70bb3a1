#include "transport/segment_directory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/log.h"
#include "transport/transport.h"

namespace shardcomm {
namespace {

constexpr uint32_t kSlotBits = 10;
static_assert(kMostPublished == size_t{1} << kSlotBits);
constexpr uint32_t kFirstId = uint32_t{1} << 31;
constexpr uint32_t kGenerations = (uint32_t{1} << (31 - kSlotBits)) - 1;  // a slot that has had them all is not used

uint32_t make_id(size_t slot, uint32_t generation) noexcept {
  return kFirstId | generation << kSlotBits | static_cast<uint32_t>(slot);
}
size_t slot_of(uint32_t id) noexcept { return id & (kMostPublished - 1); }

}  // namespace

// A segment of a peer, as it was met here.
struct SegmentDirectory::Mapped {
  Rank peer = 0;
  uint32_t id = 0;
  uint64_t address = 0;      // in the owner's process
  MappedMemory memory = {};  // null base: it could not be mapped
};

SegmentDirectory::SegmentDirectory(Rank rank, MappedTransport& transport, PeerMapping tables)
    : rank_(rank), transport_(transport), tables_(std::move(tables)), peers_(tables_.by_rank.size()) {}

SegmentDirectory::~SegmentDirectory() = default;

DirectoryEntry& SegmentDirectory::entry(Rank rank, size_t slot) const noexcept {
  return reinterpret_cast<DirectoryEntry*>(tables_.by_rank[static_cast<size_t>(rank)])[slot];
}

Result<uint32_t> SegmentDirectory::publish(const Allocation& segment) {
  SHARDCOMM_TRY_ASSIGN(const Card card, transport_.share(segment));
  std::array<uint64_t, DirectoryEntry::kCardWords> words{};
  if (card.size() > sizeof words)
    return Status(Code::kUnsupported, fmt::format("a card of {} bytes is too long to be published", card.size()));
  std::memcpy(words.data(), card.data(), card.size());

  const std::lock_guard lock(mutex_);
  drop_withdrawn();
  for (size_t slot = 0; slot < kMostPublished; ++slot) {
    DirectoryEntry& free = entry(rank_, slot);
    if (free.id.load(std::memory_order_relaxed) != 0 || next_generation_[slot] == kGenerations) continue;
    const uint32_t id = make_id(slot, next_generation_[slot]++);
    // With release each: who sees a word of this entry sees that the old id is gone.
    free.card_bytes.store(static_cast<uint32_t>(card.size()), std::memory_order_release);
    free.address.store(reinterpret_cast<uint64_t>(segment.base), std::memory_order_release);
    for (size_t i = 0; i < words.size(); ++i) free.card[i].store(words[i], std::memory_order_release);
    free.id.store(id, std::memory_order_release);
    return id;
  }
  return Status(Code::kOutOfMemory, fmt::format("rank {} has published {} segments in this communicator, which is the "
                                                "limit",
                                                rank_, kMostPublished));
}

void SegmentDirectory::withdraw(uint32_t id) noexcept {
  const std::lock_guard lock(mutex_);
  DirectoryEntry& own = entry(rank_, slot_of(id));
  if (own.id.load(std::memory_order_relaxed) == id) own.id.store(0, std::memory_order_release);
  drop_withdrawn();
}

const SegmentDirectory::Mapped* SegmentDirectory::find(Rank peer, uint32_t id) const noexcept {
  const Slots* const slots = peers_[static_cast<size_t>(peer)].slots.load(std::memory_order_acquire);
  if (slots == nullptr) return nullptr;
  const Mapped* const mapped = (*slots)[slot_of(id)].load(std::memory_order_seq_cst);
  return mapped != nullptr && mapped->id == id ? mapped : nullptr;
}

const std::byte* SegmentDirectory::locate(Rank peer, uint32_t id, uint64_t address) noexcept {
  const Mapped* mapped = find(peer, id);
  if (mapped == nullptr) mapped = meet(peer, id);
  return mapped->memory.base == nullptr ? nullptr : mapped->memory.base + (address - mapped->address);
}

// A failure is kept like a mapping: trying again for every tensor would take longer than reading it in another way.
const SegmentDirectory::Mapped* SegmentDirectory::meet(Rank peer, uint32_t id) noexcept {
  const std::lock_guard lock(mutex_);
  if (const Mapped* const met = find(peer, id); met != nullptr) return met;  // by another thread, meanwhile
  drop_withdrawn();
  static const Mapped kWithdrawn;
  auto fresh = std::make_unique<Mapped>(Mapped{.peer = peer, .id = id});
  Peer& owner = peers_[static_cast<size_t>(peer)];
  Result<MappedMemory> memory = map(peer, id, fresh->address);
  if (memory.ok()) {
    fresh->memory = std::move(memory).value();
  } else {
    owner.failure = memory.status().context(fmt::format("rank {} maps pool memory of rank {}", rank_, peer));
    log(Level::kWarn, "{}", owner.failure.message());
    if (entry(peer, slot_of(id)).id.load(std::memory_order_acquire) != id) return &kWithdrawn;
  }
  if (owner.slots_memory == nullptr) {
    owner.slots_memory = std::make_unique<Slots>();
    owner.slots.store(owner.slots_memory.get(), std::memory_order_release);
  }
  (*owner.slots_memory)[slot_of(id)].store(fresh.get(), std::memory_order_seq_cst);
  mapped_.push_back(std::move(fresh));
  return mapped_.back().get();
}

Result<MappedMemory> SegmentDirectory::map(Rank peer, uint32_t id, uint64_t& address) const {
  const DirectoryEntry& published = entry(peer, slot_of(id));
  const auto withdrawn = [&] {
    return Status(Code::kFailedPrecondition, fmt::format("rank {} has returned that memory to the system", peer));
  };
  if (published.id.load(std::memory_order_acquire) != id) return withdrawn();
  std::array<uint64_t, DirectoryEntry::kCardWords> words;
  for (size_t i = 0; i < words.size(); ++i) words[i] = published.card[i].load(std::memory_order_acquire);
  address = published.address.load(std::memory_order_acquire);
  const size_t card_bytes = std::min<size_t>(sizeof words, published.card_bytes.load(std::memory_order_acquire));
  if (published.id.load(std::memory_order_relaxed) != id) return withdrawn();
  return transport_.map_from(peer, Card(reinterpret_cast<const char*>(words.data()), card_bytes));
}

// First no slot leads to a mapping, then it is seen that nobody reads: who enters after that finds no way to it.
void SegmentDirectory::drop_withdrawn() noexcept {
  const auto is_current = [&](const auto& mapped) {
    return entry(mapped->peer, slot_of(mapped->id)).id.load(std::memory_order_acquire) == mapped->id;
  };
  const auto first_dropped = std::stable_partition(mapped_.begin(), mapped_.end(), is_current);
  for (auto dropped = first_dropped; dropped != mapped_.end(); ++dropped) {
    const Peer& owner = peers_[static_cast<size_t>((*dropped)->peer)];
    (*owner.slots_memory)[slot_of((*dropped)->id)].store(nullptr, std::memory_order_seq_cst);
    dropped_.push_back(std::move(*dropped));
  }
  mapped_.erase(first_dropped, mapped_.end());
  has_dropped_.store(!dropped_.empty(), std::memory_order_seq_cst);
  unmap_dropped();
}

void SegmentDirectory::unmap_dropped() noexcept {
  if (dropped_.empty() || readers_.load(std::memory_order_seq_cst) != 0) return;
  dropped_.clear();
  has_dropped_.store(false, std::memory_order_relaxed);
}

void SegmentDirectory::leave() noexcept {
  if (readers_.fetch_sub(1, std::memory_order_seq_cst) != 1 || !has_dropped_.load(std::memory_order_seq_cst)) return;
  const std::lock_guard lock(mutex_);
  unmap_dropped();
}

Status SegmentDirectory::why_not(Rank peer) const {
  const std::lock_guard lock(mutex_);
  return peers_[static_cast<size_t>(peer)].failure;
}

}  // namespace shardcomm
