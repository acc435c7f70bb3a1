// What a fabric tells people: who announced what, who is late, and where ranks do not agree.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "shardcomm/plan.h"
#include "transport/transport.h"

namespace shardcomm {

// "all_gather f32 1024 'gather h.3'": what rank r announced last.
std::string Fabric::announced(Rank r) const {
  const Signature& s = block(r).messages[sequence_ & 1].signature;
  const auto collective = static_cast<Collective>(s.collective);
  std::string text(shardcomm::name(collective));
  if (collective != Collective::kBarrier)
    fmt::format_to(std::back_inserter(text), " {} {}", name(static_cast<DType>(s.dtype)), s.count);
  const bool many = collective == Collective::kAllGatherMany || collective == Collective::kReduceScatterMany;
  if (many) fmt::format_to(std::back_inserter(text), " in {} items", s.root);
  if (reduces(collective)) fmt::format_to(std::back_inserter(text), " {}", name(static_cast<ReduceOp>(s.op)));
  if (collective == Collective::kBroadcast) fmt::format_to(std::back_inserter(text), " from root {}", s.root);
  const Note& note = block(r).notes[sequence_ & 1];
  if (note.label[0] != '\0') fmt::format_to(std::back_inserter(text), " '{}'", note.label);
  return text;
}

// Every rank sees the same announcements, so every rank comes to the same text on its own. Ragged counts and items are
// known by their hash only: calls may differ though their texts are equal.
Status Fabric::disagreement() const {
  struct Call {
    std::string text;
    uint64_t detail;
    std::vector<Rank> ranks;
  };
  std::vector<Call> calls;
  std::set<std::string> texts;
  for (Rank r = 0; r < size_; ++r) {
    std::string call = announced(r);
    const uint64_t detail = signature_of(r).detail;
    const auto same = [&](const Call& other) { return other.text == call && other.detail == detail; };
    auto place = std::find_if(calls.begin(), calls.end(), same);
    if (place == calls.end()) place = calls.insert(place, {call, detail, {}});
    place->ranks.push_back(r);
    texts.insert(std::move(call));
  }
  std::string text = fmt::format("op {}:", own().notes[sequence_ & 1].epoch);
  for (const Call& call : calls) {
    fmt::format_to(std::back_inserter(text), "{} rank{} {} {}", &call == &calls.front() ? "" : ";",
                   call.ranks.size() > 1 ? "s" : "", fmt::join(call.ranks, ","), call.text);
  }
  if (texts.size() < calls.size()) text += "; ragged counts or items differ";
  return Status(Code::kFailedPrecondition, std::move(text)).context("checking that all ranks make the same call");
}

// "op 7 all_gather f32 1024: waiting for rank 2 (last finished op 6, started op 6)"
std::string Fabric::late_text() const {
  std::string text = fmt::format("op {}", own().progress.started.load(std::memory_order_relaxed));
  std::string late;
  for (const bool arriving : {true, false}) {
    if (sequence_ == 0) break;
    for (Rank r = 0; r < size_; ++r) {
      const Signal& signal = arriving ? block(r).messages[sequence_ & 1].sequence : block(r).done;
      if (r == rank_ || signal.value.load(std::memory_order_relaxed) >= sequence_) continue;
      const Progress& progress = block(r).progress;
      fmt::format_to(std::back_inserter(late), "{} rank {} (finished op {}, started op {})", late.empty() ? "" : ",", r,
                     progress.finished.load(std::memory_order_relaxed),
                     progress.started.load(std::memory_order_relaxed));
    }
    if (!late.empty()) {
      return fmt::format("{} {}: waiting for{}{}", text, announced(rank_), late,
                         arriving ? " to arrive" : " to finish reading");
    }
  }
  return text + ": nothing pending";
}

}  // namespace shardcomm
