// A build without CUDA: every operation on a CUDA stream says so.
#include "device/cuda.h"

namespace shardcomm::cuda {
namespace {

Status absent() { return Status(Code::kUnsupported, "a CUDA stream, but this library was built without CUDA"); }

}  // namespace

Result<std::shared_ptr<Event::State>> record(StreamRef) { return absent(); }
Status wait(StreamRef, const Event&) { return absent(); }
Status wait(StreamRef, const Work&) { return absent(); }
Status synchronize(StreamRef, Deadline) { return absent(); }

}  // namespace shardcomm::cuda
