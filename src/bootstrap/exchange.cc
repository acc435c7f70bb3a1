// The collective operations of the door, all made of one: rank 0 gathers, combines and publishes.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "bootstrap/bootstrap.h"
#include "bootstrap/checked_store.h"
#include "bootstrap/wire.h"

namespace shardcomm::bootstrap {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kFirstLook = std::chrono::milliseconds(100);
constexpr auto kLongestLook = std::chrono::milliseconds(1000);
constexpr auto kGrace = std::chrono::milliseconds(500);  // what others wait longer than rank 0, for its verdict

struct Round {
  Store& store;
  std::string_view key;
  Rank rank;
  int world_size;
  Deadline deadline;

  std::string given(Rank from) const { return fmt::format("{}/{}", key, from); }
  std::string taken(Rank by) const { return fmt::format("{}/{}/taken", key, by); }
  std::string result() const { return fmt::format("{}/result", key); }
};

using Blobs = std::vector<std::string>;
using Combine = Result<std::string> (*)(const Blobs&, std::string_view what);

Status check(const Round& round) {
  if (round.key.empty()) return Status(Code::kInvalidArgument, "the key is empty");
  return check_place(round.rank, round.world_size);
}

// Rank 0's look at everyone's values, `name` of each rank. It waits for one after the other, but now and then looks at
// all that are missing, so that a failure that a later rank brings is everyone's long before the deadline.
class Gathering {
 public:
  Gathering(const Round& round, std::string (Round::*name)(Rank) const) : round_(round), name_(name) {
    blobs_.resize(static_cast<size_t>(round.world_size));
    came_.resize(blobs_.size());
    came_[0] = true;
  }

  Status finish(Deadline deadline) {
    auto look = kFirstLook;
    for (bool late = false; !late; look = std::min(look * 2, kLongestLook)) {
      late = Clock::now() >= deadline;
      SHARDCOMM_TRY(pass(std::min<Deadline>(deadline, Clock::now() + look)));
      if (std::find(came_.begin(), came_.end(), false) == came_.end()) return {};
    }
    std::vector<Rank> missing;
    for (Rank r = 1; r < round_.world_size; ++r) {
      if (!came(r)) missing.push_back(r);
    }
    return Status(Code::kTimedOut, fmt::format("{} of {} did not come in time ({})", rank_list(missing),
                                               round_.world_size, last_.message()));
  }

  bool came(Rank rank) const { return came_[static_cast<size_t>(rank)]; }
  Blobs& blobs() { return blobs_; }

 private:
  // Takes what is there; waits until `patience` for ranks up to the first that does not come.
  Status pass(Deadline patience) {
    bool waits = true;
    for (Rank from = 1; from < round_.world_size; ++from) {
      if (came(from)) continue;
      Result<std::string> got = round_.store.get((round_.*name_)(from), waits ? patience : Clock::now());
      if (got.status().code() == Code::kTimedOut) {
        waits = false;
        last_ = got.status();
        continue;
      }
      SHARDCOMM_TRY(got.status());
      came_[static_cast<size_t>(from)] = true;
      Result<std::string> blob = unpack_result(got.value());
      if (!blob.ok()) return Status(blob.status().code(), fmt::format("rank {}: {}", from, blob.status().message()));
      blobs_[static_cast<size_t>(from)] = std::move(blob).value();
    }
    return {};
  }

  const Round& round_;
  std::string (Round::*name_)(Rank) const;
  std::vector<bool> came_;
  Blobs blobs_;
  Status last_;
};

// Frees what this round has put into one of our own stores.
void forget(const Round& round) {
  auto* store = dynamic_cast<CheckedStore*>(&round.store);
  if (store == nullptr) return;
  std::vector<std::string> keys = {round.result()};
  for (Rank r = 1; r < round.world_size; ++r) {
    keys.push_back(round.given(r));
    keys.push_back(round.taken(r));
  }
  (void)store->forget(keys);  // costs memory where it fails, nothing else
}

// After a failure: lets those who came read the result before rank 0's store may end, but not for long.
void await_some_readers(const Round& round, const Gathering& gathering) {
  const Deadline soon = Clock::now() + kGrace;
  for (Rank r = 1; r < round.world_size; ++r) {
    if (!gathering.came(r)) continue;
    if (round.store.get(round.taken(r), soon).status().code() == Code::kPeerLost) return;
  }
}

Result<std::string> lead(const Round& round, const Result<std::string>& mine, Combine combine, std::string_view what) {
  Gathering gathering(round, &Round::given);
  Result<std::string> outcome = Status(mine.status().code(), fmt::format("rank 0: {}", mine.status().message()));
  if (mine.ok()) {
    gathering.blobs()[0] = mine.value();
    const Status gathered = gathering.finish(round.deadline);
    outcome = gathered.ok() ? combine(gathering.blobs(), what) : Result<std::string>(gathered);
  }
  const Status published = round.store.set(round.result(), pack_result(outcome));
  if (!published.ok()) return outcome.ok() ? published : outcome.status();
  if (!outcome.ok()) {
    await_some_readers(round, gathering);
    return outcome;
  }
  SHARDCOMM_TRY(
      Gathering(round, &Round::taken).finish(round.deadline).context("waiting until all have read the result"));
  forget(round);
  return outcome;
}

Result<std::string> follow(const Round& round, const Result<std::string>& mine) {
  SHARDCOMM_TRY(round.store.set(round.given(round.rank), pack_result(mine)));
  const Result<std::string> published = round.store.get(round.result(), round.deadline + kGrace);
  if (!published.ok()) {
    // A store that fails here may still work for others: rank 0 need not wait until the deadline to know.
    if (published.status().code() != Code::kTimedOut) {
      (void)round.store.set(round.taken(round.rank), pack_result(published));
    }
    return mine.ok() ? published : mine;
  }
  // Rank 0 may be gone by now, which is no longer our concern.
  (void)round.store.set(round.taken(round.rank), pack_result(std::string()));
  return unpack_result(published.value());
}

Result<std::string> run(Round round, const Result<std::string>& mine, Combine combine, std::string_view what) {
  SHARDCOMM_TRY(check(round));
  round.deadline = std::min(round.deadline, deadline_after(std::chrono::milliseconds::max()));
  if (round.world_size == 1) {
    SHARDCOMM_TRY(mine.status());
    return combine({mine.value()}, what);
  }
  Result<std::string> outcome = round.rank == 0 ? lead(round, mine, combine, what) : follow(round, mine);
  if (outcome.ok()) return outcome;
  return outcome.status().context(fmt::format("ranks meet for '{}'", round.key));
}

Result<std::string> combine_all(const Blobs& blobs, std::string_view) {
  std::string all = pack(blobs);
  if (all.size() + sizeof(uint32_t) <= kValueLimit) return all;
  return Status(Code::kInvalidArgument,
                fmt::format("all ranks together bring {} bytes, at most {} can be exchanged", all.size(), kValueLimit));
}

// "ranks 0, 1, 3 have 'x'; rank 2 has 'y'": groups in the order of their first ranks.
Result<std::string> combine_equal(const Blobs& texts, std::string_view what) {
  constexpr size_t kValuesShown = 4;
  constexpr size_t kBytesShown = 200;
  std::map<std::string_view, std::vector<Rank>> groups;
  std::vector<std::string_view> order;
  for (size_t r = 0; r < texts.size(); ++r) {
    std::vector<Rank>& ranks = groups[texts[r]];
    if (ranks.empty()) order.push_back(texts[r]);
    ranks.push_back(static_cast<Rank>(r));
  }
  if (order.size() == 1) return std::string();
  std::string text = fmt::format("ranks differ in {}: ", what);
  for (size_t i = 0; i < std::min(order.size(), kValuesShown); ++i) {
    const std::vector<Rank>& ranks = groups[order[i]];
    const bool cut = order[i].size() > kBytesShown;
    text += fmt::format("{}{} {} '{}'{}", i == 0 ? "" : "; ", rank_list(ranks), ranks.size() == 1 ? "has" : "have",
                        order[i].substr(0, kBytesShown), cut ? "…" : "");
  }
  if (order.size() > kValuesShown) text += fmt::format("; and {} other values", order.size() - kValuesShown);
  return Status(Code::kFailedPrecondition, std::move(text));
}

}  // namespace

Result<std::vector<std::string>> exchange_result(Store& store, std::string_view key, Rank rank, int world_size,
                                                 const Result<std::string>& blob, Deadline deadline) {
  SHARDCOMM_TRY_ASSIGN(const std::string all, run({store, key, rank, world_size, deadline}, blob, combine_all, {}));
  auto blobs = unpack(all);
  if (!blobs || blobs->size() != static_cast<size_t>(world_size))
    return Status(Code::kInternal, fmt::format("the published result of '{}' is malformed", key));
  return std::move(*blobs);
}

Result<std::vector<std::string>> exchange(Store& store, std::string_view key, Rank rank, int world_size,
                                          std::string_view blob, Deadline deadline) {
  return exchange_result(store, key, rank, world_size, std::string(blob), deadline);
}

Status agree(Store& store, std::string_view key, Rank rank, int world_size, std::string_view what,
             std::string_view text, Deadline deadline) {
  return run({store, key, rank, world_size, deadline}, std::string(text), combine_equal, what).status();
}

Status agree(Store& store, std::string_view key, Rank rank, int world_size, std::string_view what, uint64_t fingerprint,
             Deadline deadline) {
  return agree(store, key, rank, world_size, what, fmt::format("{:#018x}", fingerprint), deadline);
}

Status agree_ok(Store& store, std::string_view key, Rank rank, int world_size, const Status& mine, Deadline deadline) {
  const Result<std::string> blob = mine.ok() ? Result<std::string>(std::string()) : Result<std::string>(mine);
  return run({store, key, rank, world_size, deadline}, blob,
             [](const Blobs&, std::string_view) { return Result<std::string>(std::string()); }, {})
      .status();
}

}  // namespace shardcomm::bootstrap
