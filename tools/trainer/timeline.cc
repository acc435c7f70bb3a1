#include "tools/trainer/timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

namespace shardcomm::trainer {
namespace {

constexpr double kLeft = 118, kRight = 20, kTop = 64, kLaneHeight = 20, kLaneGap = 3, kRankGap = 16, kWidth = 1400;
constexpr double kLeastWidth = 2.5;  // what takes no time, like freeing, still shows
constexpr double kGlyphWidth = 6.2;  // of the labels' font, about
constexpr Lane kLanes[] = {Lane::kGather, Lane::kCompute, Lane::kReduce, Lane::kFree};

std::string_view color(Lane lane) {
  switch (lane) {
    case Lane::kGather: return "#4e79a7";
    case Lane::kCompute: return "#59a14f";
    case Lane::kReduce: return "#f28e2b";
    case Lane::kFree: return "#9c755f";
    default: return "#bab0ac";
  }
}

std::string escape(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '&')
      out += "&amp;";
    else if (c == '"')
      out += "&quot;";
    else
      out += c;
  }
  return out;
}

class Drawing {
 public:
  Drawing(int64_t begin_ns, int64_t end_ns)
      : begin_ns_(begin_ns),
        scale_((kWidth - kLeft - kRight) / static_cast<double>(std::max<int64_t>(1, end_ns - begin_ns))) {}

  double x(int64_t ns) const { return kLeft + static_cast<double>(ns - begin_ns_) * scale_; }

  void text(double x, double y, std::string_view anchor, std::string_view words) {
    out_ += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", x, y, anchor, escape(words));
  }

  void line(double x1, double y1, double x2, double y2) {
    out_ += fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"#e3e3e3\"/>\n", x1, y1,
                        x2, y2);
  }

  void swatch(double x, double y, Lane lane) {
    out_ +=
        fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"12\" height=\"12\" fill=\"{}\"/>\n", x, y, color(lane));
    text(x + 17, y + 10, "start", name(lane));
  }

  void bar(const TraceEvent& event, double y) {
    const double left = x(event.begin_ns);
    const double width = std::max(kLeastWidth, x(event.end_ns) - left);
    out_ += fmt::format(
        "<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{}\" rx=\"1.5\" fill=\"{}\"><title>{} {}: {:.3f} "
        "ms, {} bytes</title></rect>\n",
        left, y, width, kLaneHeight, color(event.lane), name(event.lane), escape(event.name),
        static_cast<double>(event.end_ns - event.begin_ns) / 1e6, event.bytes);
    if (width < kGlyphWidth * static_cast<double>(event.name.size()) + 4) return;
    out_ += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\" fill=\"#fff\">{}</text>\n",
                        left + width / 2, y + kLaneHeight - 6, escape(event.name));
  }

  std::string finish(double height) const {
    return fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1:.0f}\" width=\"{0}\" height=\"{1:.0f}\" "
        "font-family=\"sans-serif\" "
        "font-size=\"11\" fill=\"#333\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n{2}</svg>\n",
        kWidth, height, out_);
  }

 private:
  int64_t begin_ns_;
  double scale_;
  std::string out_;
};

// 1, 2 or 5 times a power of ten: about ten ticks on the axis.
double tick_ms(double span_ms) {
  double tick = 1e-6;
  for (int i = 0; span_ms / tick > 12; ++i) tick *= i % 3 == 1 ? 2.5 : 2;
  return tick;
}

}  // namespace

Result<std::vector<TraceEvent>> collect_events(Communicator& comm, const std::vector<TraceEvent>& mine) {
  const std::string own = trace_to_bytes(mine);
  const auto ranks = static_cast<size_t>(comm.size());
  const uint64_t own_bytes = own.size();
  std::vector<uint64_t> sizes(ranks);
  SHARDCOMM_TRY(
      comm.all_gather({&own_bytes, sizes.data(), 1, DType::kU64, "trace sizes"}, StreamRef::caller()).status());
  std::vector<size_t> counts(sizes.begin(), sizes.end());
  size_t total = 0;
  for (const size_t count : counts) total += count;
  std::string all(total, '\0');
  SHARDCOMM_TRY(comm.all_gather_v({own.data(), all.data(), counts, DType::kU8, "trace"}, StreamRef::caller()).status());
  std::vector<TraceEvent> events;
  if (comm.rank() != 0) return events;
  size_t offset = 0;
  for (const size_t count : counts) {
    SHARDCOMM_TRY_ASSIGN(auto part, trace_from_bytes(std::string_view(all).substr(offset, count)));
    events.insert(events.end(), std::make_move_iterator(part.begin()), std::make_move_iterator(part.end()));
    offset += count;
  }
  std::stable_sort(events.begin(), events.end(), [](const auto& a, const auto& b) { return a.begin_ns < b.begin_ns; });
  return events;
}

std::string timeline_svg(const std::vector<TraceEvent>& events, const std::string& title) {
  int64_t begin = INT64_MAX, end = INT64_MIN;
  std::set<Rank> ranks;
  for (const TraceEvent& event : events) {
    begin = std::min(begin, event.begin_ns);
    end = std::max(end, event.end_ns);
    ranks.insert(event.rank);
  }
  if (events.empty()) begin = end = 0;
  Drawing drawing(begin, end);
  const double rank_height = 4 * (kLaneHeight + kLaneGap) + kRankGap;
  const double bottom = kTop + rank_height * static_cast<double>(ranks.size());
  drawing.text(kLeft, 20, "start", title);
  double legend = kLeft;
  for (const Lane lane : kLanes) {
    drawing.swatch(legend, 32, lane);
    legend += 86;
  }
  const double span_ms = static_cast<double>(end - begin) / 1e6;
  const double tick = tick_ms(span_ms);
  for (double ms = 0; ms <= span_ms; ms += tick) {
    const double at = drawing.x(begin + static_cast<int64_t>(ms * 1e6));
    drawing.line(at, kTop - 6, at, bottom);
    drawing.text(at, bottom + 14, "middle", fmt::format("{:g} ms", std::round(ms * 1e6) / 1e6));
  }
  std::map<std::pair<Rank, Lane>, double> lane_y;
  double y = kTop;
  for (const Rank rank : ranks) {
    drawing.text(12, y + 2 * (kLaneHeight + kLaneGap), "start", fmt::format("rank {}", rank));
    for (const Lane lane : kLanes) {
      drawing.text(kLeft - 8, y + kLaneHeight - 6, "end", name(lane));
      lane_y[{rank, lane}] = y;
      y += kLaneHeight + kLaneGap;
    }
    y += kRankGap;
  }
  for (const TraceEvent& event : events) {
    if (const auto place = lane_y.find({event.rank, event.lane}); place != lane_y.end())
      drawing.bar(event, place->second);
  }
  return drawing.finish(bottom + 28);
}

}  // namespace shardcomm::trainer
