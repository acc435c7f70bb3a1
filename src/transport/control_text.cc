// Error texts of controls: which ranks announced what, which are late, and where they do not agree.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "transport/mapped_control.h"

namespace shardcomm {

namespace {

// Names what ranks differ in though their calls read alike.
std::string_view hidden_difference(const Call& call, bool same_phase) noexcept {
  if (call.kind == CallKind::kAgreement) return "; their labels differ further on";
  const CollectiveTraits& has = traits(call.collective);
  if (has.is_many || has.is_ragged) return "; ragged counts or items differ";
  return has.reduces() && same_phase ? "; their scales differ" : "; they are at different steps of the same call";
}

}  // namespace

// Every rank sees the same announcements, so every rank comes to the same text on its own. Ragged counts and items are
// known by their hash only: calls may differ though their texts are equal.
Status disagreement(uint64_t epoch, std::span<const AnnouncedCall> by_rank) {
  struct Group {
    std::string text;
    uint64_t detail;
    uint8_t phase;
    std::vector<Rank> ranks;
  };
  std::vector<Group> groups;
  std::set<std::string> texts;
  for (size_t r = 0; r < by_rank.size(); ++r) {
    const Signature& signature = by_rank[r].signature;
    std::string call = text(signature.call, by_rank[r].label);
    const uint8_t phase = by_rank[r].phase;
    const auto same = [&](const Group& group) {
      return group.text == call && group.detail == signature.detail && group.phase == phase;
    };
    auto place = std::find_if(groups.begin(), groups.end(), same);
    if (place == groups.end()) place = groups.insert(place, {call, signature.detail, phase, {}});
    place->ranks.push_back(static_cast<Rank>(r));
    texts.insert(std::move(call));
  }
  std::string message = fmt::format("op {}:", epoch);
  for (const Group& group : groups) {
    fmt::format_to(std::back_inserter(message), "{} rank{} {} {}", &group == &groups.front() ? "" : ";",
                   group.ranks.size() > 1 ? "s" : "", fmt::join(group.ranks, ","), group.text);
  }
  if (texts.size() < groups.size()) {
    const uint8_t phase = by_rank.front().phase;
    const bool same_phase =
        std::ranges::all_of(by_rank, [&](const AnnouncedCall& call) { return call.phase == phase; });
    message += hidden_difference(by_rank.front().signature.call, same_phase);
  }
  return Status(Code::kFailedPrecondition, std::move(message)).context("checking that all ranks make the same call");
}

Status MappedControl::find_disagreement() const {
  std::vector<AnnouncedCall> calls;
  for (Rank r = 0; r < setup_.size; ++r) calls.push_back(announced_by(r));
  return disagreement(own().notes[sequence_ & 1].epoch, calls);
}

AnnouncedCall MappedControl::announced_by(Rank r) const noexcept {
  const Message& message = block(r).messages[sequence_ & 1];
  return {.signature = message.signature, .phase = message.phase, .label = block(r).notes[sequence_ & 1].label};
}

// "op 7 all_gather f32 1024: waiting for rank 2 (last finished op 6, started op 6)"
std::string MappedControl::late_text() const {
  const std::string message = fmt::format("op {}", own().progress.started.load(std::memory_order_relaxed));
  std::string late;
  for (const bool arriving : {true, false}) {
    if (sequence_ == 0) break;
    for (Rank r = 0; r < setup_.size; ++r) {
      const Signal& signal = arriving ? block(r).messages[sequence_ & 1].sequence : block(r).done;
      if (r == setup_.rank || signal.value.load(std::memory_order_relaxed) >= sequence_) continue;
      const Progress& progress = block(r).progress;
      fmt::format_to(std::back_inserter(late), "{} rank {} (finished op {}, started op {})", late.empty() ? "" : ",", r,
                     progress.finished.load(std::memory_order_relaxed),
                     progress.started.load(std::memory_order_relaxed));
    }
    if (!late.empty()) {
      const AnnouncedCall own_call = announced_by(setup_.rank);
      return fmt::format("{} {}: waiting for{}{}", message, text(own_call.signature.call, own_call.label), late,
                         arriving ? " to arrive" : " to finish reading");
    }
  }
  return message + ": nothing pending";
}

}  // namespace shardcomm
