// What stream.cc asks of CUDA. One implementation in a build: cuda.cc, or cuda_absent.cc where there is no CUDA.
#pragma once
#include <memory>

#include "shardcomm/status.h"
#include "shardcomm/stream.h"
#include "shardcomm/types.h"

namespace shardcomm::cuda {

Result<std::shared_ptr<Event::State>> record(StreamRef stream);
Status wait(StreamRef stream, const Event& event);
Status wait(StreamRef stream, const Work& work);
Status synchronize(StreamRef stream, Deadline deadline);

}  // namespace shardcomm::cuda
