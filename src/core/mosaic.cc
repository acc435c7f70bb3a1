// Mosaic windows: the memory of a window, mapped once more side by side, and the gather that copies nothing.
#include <fmt/format.h>

#include "base/pod.h"
#include "core/core.h"
#include "core/window_impl.h"

namespace shardcomm {

struct MosaicWindow::Impl {
  Window window;
  Mosaic mosaic;
};

MosaicWindow::MosaicWindow(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
MosaicWindow::MosaicWindow(MosaicWindow&&) noexcept = default;
MosaicWindow& MosaicWindow::operator=(MosaicWindow&&) noexcept = default;
MosaicWindow::~MosaicWindow() = default;
std::byte* MosaicWindow::shard() const noexcept { return impl_->window.data(); }
const std::byte* MosaicWindow::all() const noexcept { return impl_->mosaic.data(); }
size_t MosaicWindow::shard_bytes() const noexcept { return impl_->window.size_bytes(); }
std::string_view MosaicWindow::label() const noexcept { return impl_->window.label(); }
size_t MosaicWindow::granularity_bytes() noexcept { return page_bytes(); }

Result<MosaicWindow> Communicator::allocate_mosaic(size_t shard_bytes, std::string_view label) {
  if (shard_bytes == 0 || shard_bytes % page_bytes() != 0) {
    return Status(Code::kInvalidArgument,
                  fmt::format("mosaic '{}': a shard of {} bytes is not a multiple of {}, a page", label, shard_bytes,
                              page_bytes()));
  }
  Core& core = *impl_->core;
  const auto reservation = core.reserve();
  SHARDCOMM_TRY_ASSIGN(const auto sizes,
                       core.exchange(as_bytes(shard_bytes), fmt::format("allocate_mosaic {}", label)));
  for (size_t r = 1; r < sizes.size(); ++r) {
    if (sizes[r] == sizes[0]) continue;
    return Status(Code::kFailedPrecondition,
                  fmt::format("mosaic '{}': ranks 0 and {} have shards of different sizes", label, r));
  }
  SHARDCOMM_TRY_ASSIGN(SharedMemory memory, share_memory(core, shard_bytes, label));
  Result<Mosaic> mosaic = Mosaic::create(memory.mapping.by_rank, shard_bytes);
  SHARDCOMM_TRY(agree_on(core, mosaic.status(), "allocate_mosaic: side by side"));
  return MosaicWindow(std::make_unique<MosaicWindow::Impl>(
      MosaicWindow::Impl{Window(window_over(core, std::move(memory), label)), std::move(mosaic).value()}));
}

Result<Work> Communicator::all_gather(const MosaicWindow& mosaic, StreamRef stream) {
  const Item shard{mosaic.shard(), nullptr, mosaic.shard_bytes(), DType::kU8, ReduceOp::kSum};
  const Call call{.collective = Collective::kAllGather, .kind = CallKind::kMosaic};
  Operation operation(call, {&shard, 1}, kept_label(mosaic.label()));
  return impl_->core->submit(operation, stream);
}

}  // namespace shardcomm
