// Windows: collective creation, with one verdict for all ranks at each step.
#include "core/window_impl.h"

#include <fmt/format.h>

#include <cstring>

#include "core/core.h"

namespace shardcomm {
namespace {

struct Need {
  uint64_t bytes;
  uint64_t available;
};

// All ranks share this node's memory, so what counts is the sum.
Status check_memory(std::span<const std::string> blobs, std::string_view label) {
  uint64_t needed = 0, available = UINT64_MAX;
  for (const std::string& blob : blobs) {
    Need need{};
    if (blob.size() == sizeof need) std::memcpy(&need, blob.data(), sizeof need);
    needed = needed + need.bytes < needed ? UINT64_MAX : needed + need.bytes;
    available = std::min(available, need.available);
  }
  if (needed <= available) return {};
  return Status(Code::kOutOfMemory,
                fmt::format("window '{}' needs {} bytes on this node for {} ranks, {} are available", label, needed,
                            blobs.size(), available));
}

template <class T>
std::string_view as_blob(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

}  // namespace

Window::Impl::~Impl() {
  if (const auto alive = fabric.lock(); alive != nullptr && id != kNoWindow) alive->close_window(id);
}

Window::Window(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
Window::Window(Window&&) noexcept = default;
Window& Window::operator=(Window&&) noexcept = default;
Window::~Window() = default;
std::byte* Window::data() const noexcept { return impl_->base; }
size_t Window::size_bytes() const noexcept { return impl_->size_bytes; }
std::string_view Window::label() const noexcept { return impl_->label; }
bool Window::owns_memory() const noexcept { return impl_->owns; }

Result<SharedMemory> share_memory(Core& core, size_t bytes, std::string_view label) {
  const Need need{bytes, memory_available_bytes()};
  SHARDCOMM_TRY_ASSIGN(const auto needs, core.exchange(as_blob(need), fmt::format("allocate_window {}", label)));
  SHARDCOMM_TRY(check_memory(needs, label));

  // Each rank brings its segment's card, or why it has none.
  Result<Segment> segment = Segment::create(bytes, fmt::format("window '{}'", label));
  Result<Card> card = segment.ok() ? core.fabric->share(*segment) : Result<Card>(segment.status());
  const auto base = reinterpret_cast<uint64_t>(segment.ok() ? segment->data() : nullptr);
  SHARDCOMM_TRY_ASSIGN(const auto blobs,
                       core.exchange(pack({pack_status(card.status()), card.ok() ? *card : "", as_blob(base)}),
                                     "allocate_window: cards"));
  std::vector<std::string> statuses, cards;
  std::vector<uint64_t> bases;
  for (const std::string& blob : blobs) {
    SHARDCOMM_TRY_ASSIGN(auto fields, unpack(blob, 3));
    statuses.push_back(std::move(fields[0]));
    cards.push_back(std::move(fields[1]));
    if (fields[2].size() == sizeof base) std::memcpy(&bases.emplace_back(), fields[2].data(), sizeof base);
  }
  SHARDCOMM_TRY(first_failure(statuses));
  auto mapping = core.fabric->map_window(cards);
  SHARDCOMM_TRY(agree_on(core, mapping.status(), "allocate_window: mapped"));
  segment->close_fd();
  return SharedMemory{std::move(segment).value(), std::move(bases), std::move(mapping).value()};
}

Status agree_on(Core& core, const Status& status, std::string_view label) {
  SHARDCOMM_TRY_ASSIGN(const auto statuses, core.exchange(pack_status(status), label));
  return first_failure(statuses);
}

std::unique_ptr<Window::Impl> window_over(Core& core, SharedMemory memory, std::string_view label) {
  auto impl = std::make_unique<Window::Impl>();
  impl->segment = std::move(memory.segment);
  impl->base = impl->segment->data();
  impl->size_bytes = impl->segment->size_bytes();
  impl->label = label;
  impl->owns = true;
  impl->fabric = core.fabric;
  impl->id = core.fabric->add_window(impl->base, impl->size_bytes, std::move(memory.bases), std::move(memory.mapping));
  return impl;
}

Result<Window> Communicator::allocate_window(size_t size_bytes, std::string_view label) {
  Core& core = *impl_->core;
  SHARDCOMM_TRY_ASSIGN(SharedMemory memory, share_memory(core, size_bytes, label));
  return Window(window_over(core, std::move(memory), label));
}

// The memory stays the caller's. Threads of one process read it in place, other processes by attach or staging; what
// transports that pin memory will want to know is known here.
Result<Window> Communicator::register_window(void* base, size_t size_bytes, std::string_view label) {
  if (base == nullptr && size_bytes != 0) return Status(Code::kInvalidArgument, "base is null");
  SHARDCOMM_TRY(impl_->core->exchange(as_blob(size_bytes), fmt::format("register_window {}", label)).status());
  auto impl = std::make_unique<Window::Impl>();
  impl->base = static_cast<std::byte*>(base);
  impl->size_bytes = size_bytes;
  impl->label = label;
  return Window(std::move(impl));
}

}  // namespace shardcomm
