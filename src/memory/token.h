// Making tokens; see memory.h for what they are. Any thread.
#pragma once
#include "memory/memory.h"

namespace shardcomm {

Token random_token();

// process_token(), at an address that stays the same until the process ends.
const Token& process_token_in_place();

}  // namespace shardcomm
