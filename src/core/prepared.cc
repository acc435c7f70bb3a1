// Prepared calls: a checked operation with its own list of tensors, which is handed to core again and again.
#include "shardcomm/prepared.h"

#include "core/core.h"

namespace shardcomm {

struct PreparedCall::Impl {
  std::weak_ptr<Core> core;
  std::shared_ptr<PreparedOperation> prepared;
};

PreparedCall::PreparedCall(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
PreparedCall::PreparedCall(PreparedCall&&) noexcept = default;
PreparedCall& PreparedCall::operator=(PreparedCall&&) noexcept = default;
PreparedCall::~PreparedCall() = default;

Result<Work> PreparedCall::run(StreamRef stream, std::chrono::milliseconds timeout) {
  const std::shared_ptr<Core> core = impl_->core.lock();
  if (core == nullptr)
    return Status(Code::kFailedPrecondition, "the communicator of this prepared call has been destroyed");
  Operation operation = impl_->prepared->operation;
  operation.prepared = impl_->prepared;
  operation.timeout = timeout;
  return core->submit(operation, stream);
}

Result<PreparedCall> Communicator::prepare_gather(std::span<const GatherItem> items, std::string_view label) {
  SHARDCOMM_TRY_ASSIGN(auto prepared, impl_->core->prepare_many(Collective::kAllGatherMany, items, label));
  return PreparedCall(std::make_unique<PreparedCall::Impl>(PreparedCall::Impl{impl_->core, std::move(prepared)}));
}

Result<PreparedCall> Communicator::prepare_reduce(std::span<const ReduceItem> items, std::string_view label) {
  SHARDCOMM_TRY_ASSIGN(auto prepared, impl_->core->prepare_many(Collective::kReduceScatterMany, items, label));
  return PreparedCall(std::make_unique<PreparedCall::Impl>(PreparedCall::Impl{impl_->core, std::move(prepared)}));
}

}  // namespace shardcomm
