// Reading results of benches.
#include <fmt/format.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "tools/bench/plot.h"

namespace shardcomm::tools {
namespace {

using Json = nlohmann::json;

PlotPoint point_of(const Json& row) {
  PlotPoint point{.bytes = row.at("bytes").get<double>(),
                  .busbw = row.at("busbw").get<double>(),
                  .median_us = row.at("time_us").at("median").get<double>(),
                  .min_us = row.at("time_us").at("min").get<double>(),
                  .p90_us = row.at("time_us").at("p90").get<double>(),
                  .limit_us = {},
                  .limit_busbw = {}};
  if (const Json limit = row.value("limit", Json()); limit.is_object()) {
    point.limit_us = limit.at("us").get<double>();
    point.limit_busbw = limit.at("busbw").get<double>();
  }
  return point;
}

// "reduce_scatter sum bf16, 2 ranks as processes, window, in place"; a peer's begins with its name.
std::string description_of(const Json& all) {
  const std::string program = all.value("program", "shardcomm");
  std::string text = (program == "shardcomm" ? "" : program + ", ") + all.at("collective").get<std::string>();
  if (!all.at("results").empty()) {
    const Json& row = all.at("results").front();
    const auto op = row.value("op", "none");
    text += fmt::format("{} {}", op == "none" ? "" : " " + op, row.value("dtype", ""));
  }
  text += fmt::format(", {} ranks as {}", all.at("ranks").get<int>(), all.value("mode", "processes"));
  if (all.contains("memory")) text += ", " + all.at("memory").get<std::string>();
  if (all.value("in_place", false)) text += ", in place";
  return text;
}

}  // namespace

Result<PlotSeries> series_of(std::string_view json, std::string_view name) {
  try {
    const Json all = Json::parse(json);
    PlotSeries series{.name = fmt::format("{}: {}", name, description_of(all)), .points = {}};
    for (const Json& row : all.at("results")) series.points.push_back(point_of(row));
    return series;
  } catch (const Json::exception& error) {
    return Status(Code::kInvalidArgument, fmt::format("{}: no results of a bench: {}", name, error.what()));
  }
}

Result<PlotSeries> read_series(const std::string& path) {
  std::ifstream file(path);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!file.good() && text.empty()) return Status::native(Origin::kErrno, errno, fmt::format("read '{}'", path));
  return series_of(text, std::filesystem::path(path).filename().string());
}

}  // namespace shardcomm::tools
