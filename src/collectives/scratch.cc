#include "collectives/scratch_buffers.h"

namespace shardcomm {

Scratch::Scratch() : buffers_(std::make_unique<Buffers>()) {}
Scratch::~Scratch() = default;

}  // namespace shardcomm
