// A communicator of some ranks of another, without the rest of them: it meets over messages.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "base/hash.h"
#include "base/pod.h"
#include "core/core.h"

namespace shardcomm {
namespace {

// A tag of the library's own, so that subgroups with different labels can meet at the same time.
int32_t meeting_tag(std::string_view label) noexcept { return -1 - static_cast<int32_t>(hash_text(label) & INT32_MAX); }

Status check(std::span<const Rank> ranks, const Communicator::Group& self) {
  const auto invalid = [](std::string text) { return Status(Code::kInvalidArgument, std::move(text)); };
  for (const Rank rank : ranks) {
    if (rank < 0 || rank >= self.size)
      return invalid(fmt::format("rank {} is out of range: the group has {} ranks", rank, self.size));
  }
  if (std::set<Rank>(ranks.begin(), ranks.end()).size() != ranks.size())
    return invalid(fmt::format("ranks {} name one rank twice", fmt::join(ranks, ",")));
  if (std::ranges::find(ranks, self.rank) == ranks.end())
    return invalid(fmt::format("rank {} is not one of the ranks {}", self.rank, fmt::join(ranks, ",")));
  return {};
}

std::string text_of(std::span<const Rank> ranks) { return fmt::format("{}", fmt::join(ranks, ",")); }

// The first exchange: everybody has named the same ranks. The first rank's list says who has sent the others.
Status agree_on_ranks(const Exchange& exchange, std::span<const Rank> ranks, Rank me) {
  const std::string mine = text_of(ranks);
  SHARDCOMM_TRY_ASSIGN(const auto lists, exchange("ranks", mine));
  const auto differ = [&](Rank other, std::string_view list) {
    return Status(Code::kFailedPrecondition,
                  fmt::format("rank {} names the ranks {}, rank {} the ranks {}", ranks[0], lists[0], other, list));
  };
  if (lists[0] != mine) return differ(me, mine);
  for (size_t i = 1; i < lists.size(); ++i) {
    if (lists[i] != mine) return differ(ranks[i], lists[i]);
  }
  return {};
}

}  // namespace

Result<Communicator> Communicator::subgroup(std::span<const Rank> ranks, std::string_view label) {
  Core& core = *impl_->core;
  SHARDCOMM_TRY(check(ranks, core.self));
  const Deadline deadline = std::chrono::steady_clock::now() + core.options.init_timeout;
  const Exchange over_messages = [&](std::string_view, std::string_view blob) {
    return core.exchange_among(ranks, blob, meeting_tag(label), deadline);
  };
  const auto doing = [&] {
    return fmt::format("rank {} joins the subgroup '{}' of ranks {}", rank(), label, text_of(ranks));
  };
  if (Status agreed = agree_on_ranks(over_messages, ranks, rank()); !agreed.ok()) return agreed.context(doing());
  const auto place = std::ranges::find(ranks, rank());
  const Group group{static_cast<Rank>(place - ranks.begin()), static_cast<int>(ranks.size()), core.self.device};
  Result<Connection> connection = connect_ranks(
      group, core.options, deadline,
      {.exchange = over_messages, .job = core.flight->place().job, .most_copy_threads = core.copy_threads()});
  if (!connection.ok()) return connection.status().context(doing());
  return Communicator(
      std::make_unique<Impl>(Impl{std::make_shared<Core>(group, core.options, std::move(connection).value())}));
}

}  // namespace shardcomm
