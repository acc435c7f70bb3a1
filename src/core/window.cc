// Windows: collective creation, with one verdict for all ranks at each step.
#include "core/window_impl.h"

#include <fmt/format.h>

#include "base/pod.h"
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
    const Need need = from_bytes<Need>(blob).value_or(Need{});
    needed = needed + need.bytes < needed ? UINT64_MAX : needed + need.bytes;
    available = std::min(available, need.available);
  }
  if (needed <= available) return {};
  return Status(Code::kOutOfMemory,
                fmt::format("window '{}' needs {} bytes on this node for {} ranks, {} are available", label, needed,
                            blobs.size(), available));
}

}  // namespace

Window::Impl::~Impl() {
  if (const auto alive = fabric.lock(); alive != nullptr && id != kNoWindow) alive->windows->close(id);
}

Window::Window(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
Window::Window(Window&&) noexcept = default;
Window& Window::operator=(Window&&) noexcept = default;
Window::~Window() = default;
std::byte* Window::data() const noexcept { return impl_->base; }
size_t Window::size_bytes() const noexcept { return impl_->size_bytes; }
std::string_view Window::label() const noexcept { return impl_->label; }
bool Window::owns_memory() const noexcept { return impl_->owns; }
bool Window::is_enrolled() const noexcept { return impl_->registration != nullptr; }

Result<SharedMemory> share_memory(Core& core, size_t bytes, std::string_view label) {
  const Need need{bytes, memory_available_bytes()};
  SHARDCOMM_TRY_ASSIGN(const auto needs, core.exchange(as_bytes(need), fmt::format("allocate_window {}", label)));
  SHARDCOMM_TRY(check_memory(needs, label));

  // Each rank brings its segment's card, or why it has none.
  Result<Segment> segment = Segment::create(bytes, fmt::format("window '{}'", label));
  Result<Card> card =
      segment.ok() ? core.fabric->transport->share(segment->allocation()) : Result<Card>(segment.status());
  const auto base = reinterpret_cast<uint64_t>(segment.ok() ? segment->data() : nullptr);
  SHARDCOMM_TRY_ASSIGN(const auto blobs,
                       core.exchange(pack({pack_status(card.status()), card.ok() ? *card : "", as_bytes(base)}),
                                     "allocate_window: cards"));
  std::vector<std::string> statuses, cards;
  std::vector<uint64_t> bases;
  for (const std::string& blob : blobs) {
    SHARDCOMM_TRY_ASSIGN(auto fields, unpack(blob, 3));
    statuses.push_back(std::move(fields[0]));
    cards.push_back(std::move(fields[1]));
    bases.push_back(from_bytes<uint64_t>(fields[2]).value_or(0));
  }
  SHARDCOMM_TRY(first_failure(statuses));
  auto mapping = core.fabric->transport->map(cards);
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
  impl->id = core.fabric->windows->add({.base = impl->base,
                                        .bytes = impl->size_bytes,
                                        .raw_base_by_rank = std::move(memory.bases),
                                        .mapping = std::move(memory.mapping)});
  return impl;
}

Result<Window> Communicator::allocate_window(size_t size_bytes, std::string_view label) {
  Core& core = *impl_->core;
  const auto reservation = core.reserve();
  SHARDCOMM_TRY_ASSIGN(SharedMemory memory, share_memory(core, size_bytes, label));
  return Window(window_over(core, std::move(memory), label));
}

Result<std::unique_ptr<Window::Impl>> enroll_memory(Core& core, std::span<std::byte> memory, std::string_view label) {
  Result<Registration> registration =
      core.fabric->transport->enroll({.base = memory.data(), .bytes = memory.size(), .device = core.self.device});
  SHARDCOMM_TRY(agree_on(core, registration.status(), fmt::format("register_window {}", label)));
  auto impl = std::make_unique<Window::Impl>();
  impl->base = memory.data();
  impl->size_bytes = memory.size();
  impl->label = label;
  impl->registration = std::move(registration).value();
  return impl;
}

Result<Window> Communicator::register_window(void* base, size_t size_bytes, std::string_view label) {
  if (base == nullptr && size_bytes != 0) return Status(Code::kInvalidArgument, "base is null");
  const auto reservation = impl_->core->reserve();
  SHARDCOMM_TRY_ASSIGN(auto impl, enroll_memory(*impl_->core, {static_cast<std::byte*>(base), size_bytes}, label));
  return Window(std::move(impl));
}

}  // namespace shardcomm
