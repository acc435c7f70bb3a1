// The door of src/bootstrap: how ranks meet before there is a transport. The stores themselves are behind
// shardcomm/store.h; here is what ranks do with one. Any Store will do.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shardcomm/status.h"
#include "shardcomm/store.h"
#include "shardcomm/types.h"

namespace shardcomm::bootstrap {

// All of these are collective: every rank of the store calls them with the same key, which serves once in a store's
// life (put a sequence number into it). They end with the same result on every rank: a success on all, or the same
// error, named after who caused it. Exceptions: a rank that comes after the deadline, and what a store can not say
// because rank 0 is gone. Past the deadline they may take up to a second longer, for rank 0's word on who is missing.
//
// Cost: rank 0 reads one value of every other rank and publishes one; every other rank sets two small values (the
// second says that it has read the result: when rank 0 returns, all have what they came for and its store may end) and
// reads one. What was published is erased at the end.

// Everyone's blob in rank order.
Result<std::vector<std::string>> exchange(Store& store, std::string_view key, Rank rank, int world_size,
                                          std::string_view blob, Deadline deadline);

// The same where making the blob may have failed: the failure of one is then everyone's, at once.
Result<std::vector<std::string>> exchange_result(Store& store, std::string_view key, Rank rank, int world_size,
                                                 const Result<std::string>& blob, Deadline deadline);

// Success if all ranks bring the same text or number; else kFailedPrecondition, which names `what` ("the bucket plan"),
// the ranks that differ and their values.
Status agree(Store& store, std::string_view key, Rank rank, int world_size, std::string_view what,
             std::string_view text, Deadline deadline);
Status agree(Store& store, std::string_view key, Rank rank, int world_size, std::string_view what, uint64_t fingerprint,
             Deadline deadline);

// Success if all ranks bring success; else the failure of one of them, with its code. Also a barrier.
Status agree_ok(Store& store, std::string_view key, Rank rank, int world_size, const Status& mine, Deadline deadline);

// A list of byte strings as one blob (of each its length, u32, then its bytes), and back; unpack gives nothing unless
// the bytes are exactly a list.
std::string pack(std::span<const std::string> items);
std::optional<std::vector<std::string>> unpack(std::string_view bytes);

// For messages: "rank 3", "ranks 1, 3, 5-8". Ranks in rising order.
std::string rank_list(std::span<const Rank> ranks);

}  // namespace shardcomm::bootstrap
