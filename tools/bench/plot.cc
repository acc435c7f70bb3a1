#include "tools/bench/plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <limits>

#include "tools/bytes.h"

namespace shardcomm::tools {
namespace {

constexpr double kPanelWidth = 470, kPanelHeight = 340;  // inside the axes
constexpr double kLeft = 70, kGap = 90, kRight = 24, kTop = 52, kUnder = 62, kLegendLine = 20;
// Eight colors that the color-blind tell apart (Okabe and Ito 2008), darkest first.
constexpr std::string_view kColors[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                        "#e69f00", "#56b4e9", "#000000", "#999999"};

std::string_view color_of(size_t series) { return kColors[series % std::size(kColors)]; }

std::string escape(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '&': out += "&amp;"; break;
      case '"': out += "&quot;"; break;
      default: out += c;
    }
  }
  return out;
}

// A logarithmic axis between two ticks.
struct Axis {
  std::vector<double> ticks;  // rising; at least two
  double from, to;            // positions of the first and the last tick

  double position(double value) const {
    const double part = std::log(value / ticks.front()) / std::log(ticks.back() / ticks.front());
    return from + (to - from) * std::clamp(part, 0.0, 1.0);
  }
};

// Powers of two around [least, most], not more than a dozen.
Axis size_axis(double least, double most, double from, double to) {
  const double low = std::floor(std::log2(least));
  const double step = std::max(1.0, std::ceil((std::log2(most) - low) / 11));
  Axis axis{{}, from, to};
  for (double e = low; axis.ticks.size() < 2 || axis.ticks.back() < most; e += step) axis.ticks.push_back(std::exp2(e));
  return axis;
}

// 1, 2 and 5 times powers of ten around [least, most]; powers of ten alone where those would be too many.
Axis value_axis(double least, double most, double from, double to) {
  const double decades = std::log10(most / least);
  const std::vector<double> digits = decades > 4 ? std::vector<double>{1} : std::vector<double>{1, 2, 5};
  Axis axis{{}, from, to};
  for (double e = std::floor(std::log10(least));; ++e) {
    for (const double digit : digits) {
      const double tick = digit * std::pow(10, e);
      if (!axis.ticks.empty() && axis.ticks.size() >= 2 && axis.ticks.back() >= most) return axis;
      if (tick <= least * (1 + 1e-9) && !axis.ticks.empty()) axis.ticks.clear();
      axis.ticks.push_back(tick);
    }
  }
}

using Value = std::function<std::optional<double>(const PlotPoint&)>;

// What one panel shows of each point.
struct Panel {
  std::string_view kind;  // class of its lines
  std::string_view title;
  std::string_view unit;
  Value median, low, high, limit;
};

class Drawing {
 public:
  Drawing(const Panel& panel, const std::vector<PlotSeries>& all, double left) : panel_(panel), all_(all) {
    double least = INFINITY, most = 0, first = INFINITY, last = 0;
    for (const PlotSeries& series : all) {
      for (const PlotPoint& point : series.points) {
        for (const Value& value : {panel.median, panel.low, panel.high, panel.limit}) {
          const std::optional<double> shown = shown_of(value, point);
          if (!shown) continue;
          least = std::min(least, *shown);
          most = std::max(most, *shown);
          first = std::min(first, point.bytes);
          last = std::max(last, point.bytes);
        }
      }
    }
    if (most == 0) least = most = first = last = 1;
    x_ = size_axis(first, last, left, left + kPanelWidth);
    y_ = value_axis(least, most, kTop + kPanelHeight, kTop);
  }

  std::string draw() {
    draw_axes();
    for (size_t i = 0; i < all_.size(); ++i) draw_series(i);
    return std::move(out_);
  }

 private:
  // Only what a logarithm can show.
  static std::optional<double> shown_of(const Value& value, const PlotPoint& point) {
    const std::optional<double> found = value(point);
    const bool can = found && *found > 0 && std::isfinite(*found) && point.bytes > 0;
    return can ? found : std::nullopt;
  }

  template <class... T>
  void add(fmt::format_string<T...> format, T&&... values) {
    fmt::format_to(std::back_inserter(out_), format, std::forward<T>(values)...);
  }

  void draw_axes() {
    for (const double tick : x_.ticks) {
      const double at = x_.position(tick);
      add("<line x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1}\" y2=\"{2}\" stroke=\"#e3e3e3\"/>\n", at, y_.to, y_.from);
      add("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n", at, y_.from + 17,
          bytes_text(static_cast<size_t>(std::llround(tick))));
    }
    for (const double tick : y_.ticks) {
      const double at = y_.position(tick);
      add("<line x1=\"{1}\" x2=\"{2}\" y1=\"{0:.1f}\" y2=\"{0:.1f}\" stroke=\"#e3e3e3\"/>\n", at, x_.from, x_.to);
      add("<text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{:.7g}</text>\n", x_.from - 7, at + 4, tick);
    }
    add("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"none\" stroke=\"#888\"/>\n", x_.from, y_.to,
        kPanelWidth, kPanelHeight);
    add("<text x=\"{}\" y=\"{}\" font-size=\"14\">{}</text>\n", x_.from, kTop - 12, escape(panel_.title));
    add("<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">bytes of the whole buffer</text>\n", (x_.from + x_.to) / 2,
        y_.from + 36);
    add("<text transform=\"translate({} {}) rotate(-90)\" text-anchor=\"middle\">{}</text>\n", x_.from - 52,
        (y_.from + y_.to) / 2, escape(panel_.unit));
  }

  std::string points_of(const PlotSeries& series, const Value& value, bool backwards = false) const {
    std::vector<std::string> points;
    for (const PlotPoint& point : series.points) {
      if (const std::optional<double> shown = shown_of(value, point))
        points.push_back(fmt::format("{:.1f},{:.1f}", x_.position(point.bytes), y_.position(*shown)));
    }
    if (backwards) std::reverse(points.begin(), points.end());
    std::string text;
    for (const std::string& point : points) text += (text.empty() ? "" : " ") + point;
    return text;
  }

  void draw_series(size_t index) {
    const PlotSeries& series = all_[index];
    const std::string_view color = color_of(index);
    const std::string band = points_of(series, panel_.low) + " " + points_of(series, panel_.high, true);
    add("<polygon points=\"{}\" fill=\"{}\" fill-opacity=\"0.12\"/>\n", band, color);
    if (const std::string limit = points_of(series, panel_.limit); !limit.empty())
      add("<polyline class=\"{}-limit\" points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-dasharray=\"5 4\"/>\n",
          panel_.kind, limit, color);
    add("<polyline class=\"{}\" points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"/>\n", panel_.kind,
        points_of(series, panel_.median), color);
    for (const PlotPoint& point : series.points) {
      const std::optional<double> shown = shown_of(panel_.median, point);
      if (!shown) continue;
      add("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\" fill=\"{}\"><title>{}, {:.0f} bytes: {:.4g} "
          "{}</title></circle>\n",
          x_.position(point.bytes), y_.position(*shown), color, escape(series.name), point.bytes, *shown,
          escape(panel_.unit));
    }
  }

  const Panel& panel_;
  const std::vector<PlotSeries>& all_;
  Axis x_, y_;
  std::string out_;
};

// The band of the bandwidth is that of the time, upside down.
double busbw_at(const PlotPoint& point, double us) { return us > 0 ? point.busbw * point.median_us / us : 0; }

const Panel kPanels[] = {
    {.kind = "busbw",
     .title = "Bus bandwidth (dashed: limit of the machine)",
     .unit = "GB/s",
     .median = [](const PlotPoint& p) { return p.busbw; },
     .low = [](const PlotPoint& p) { return busbw_at(p, p.p90_us); },
     .high = [](const PlotPoint& p) { return busbw_at(p, p.min_us); },
     .limit = [](const PlotPoint& p) { return p.limit_busbw; }},
    {.kind = "latency",
     .title = "Time of a call, median (band: minimum to 90th percentile)",
     .unit = "us",
     .median = [](const PlotPoint& p) { return p.median_us; },
     .low = [](const PlotPoint& p) { return p.min_us; },
     .high = [](const PlotPoint& p) { return p.p90_us; },
     .limit = [](const PlotPoint& p) { return p.limit_us; }},
};

}  // namespace

std::string plot_svg(const std::vector<PlotSeries>& all) {
  const double width = kLeft + 2 * kPanelWidth + kGap + kRight;
  const double legend = kTop + kPanelHeight + kUnder;
  const double height = legend + kLegendLine * static_cast<double>(all.size()) + 8;
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" "
      "font-family=\"sans-serif\" font-size=\"11\" fill=\"#333\">\n<rect width=\"100%\" height=\"100%\" "
      "fill=\"#fff\"/>\n",
      width, height);
  double left = kLeft;
  for (const Panel& panel : kPanels) {
    svg += Drawing(panel, all, left).draw();
    left += kPanelWidth + kGap;
  }
  for (size_t i = 0; i < all.size(); ++i) {
    const double at = legend + kLegendLine * static_cast<double>(i);
    svg += fmt::format("<line x1=\"{0}\" x2=\"{1}\" y1=\"{2}\" y2=\"{2}\" stroke=\"{3}\" stroke-width=\"3\"/>\n", kLeft,
                       kLeft + 26, at, color_of(i));
    svg += fmt::format("<text class=\"legend\" x=\"{}\" y=\"{}\" font-size=\"12\">{}</text>\n", kLeft + 34, at + 4,
                       escape(all[i].name));
  }
  return svg + "</svg>\n";
}

}  // namespace shardcomm::tools
