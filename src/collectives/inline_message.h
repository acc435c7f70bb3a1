// What travels inside announcements: the bytes that peers read, without the part that the sender keeps for itself.
#pragma once
#include "collectives/engine.h"

namespace shardcomm {

// Writes what the peers of `me` take from it. Returns the bytes of the message.
size_t write_message(const Step& step, Rank me, std::byte* message) noexcept;
// Copies what `me` takes from the message of a peer.
void copy_from_message(const Step& step, Rank source, Rank me, const std::byte* message) noexcept;
// Copies what `me` takes from itself: from its input, whose cache lines, unlike the message's, no peer holds.
void copy_own_part(const Step& step, Rank me) noexcept;

}  // namespace shardcomm
