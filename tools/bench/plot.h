// Results of benches as a picture: bus bandwidth over size and time over size, all axes logarithmic, one line a result.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shardcomm/status.h"

namespace shardcomm::tools {

struct PlotPoint {
  double bytes = 0;
  double busbw = 0;  // GB/s
  double median_us = 0, min_us = 0, p90_us = 0;
  std::optional<double> limit_us, limit_busbw;  // of the machine
};

struct PlotSeries {
  std::string name;  // as the legend has it
  std::vector<PlotPoint> points;
};

// From what `bench --json` writes. `name` stands before what the results say of themselves.
Result<PlotSeries> series_of(std::string_view json, std::string_view name);
Result<PlotSeries> read_series(const std::string& path);

// A standalone SVG. Medians are lines, minimum to 90th percentile of the time a band, limits of the machine dashes.
std::string plot_svg(const std::vector<PlotSeries>& all);

}  // namespace shardcomm::tools
