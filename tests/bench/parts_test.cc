// The parts of `shardcomm bench` apart from any run: statistics, batches, what a collective must move at least, the
// loops that it is measured against, and the drawing.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numeric>

#include "tests/command/xml.h"
#include "tests/support/reference.h"
#include "tools/bench/limits.h"
#include "tools/bench/plot.h"
#include "tools/bench/sampling.h"
#include "tools/bench/statistics.h"
#include "tools/bench/streams.h"

namespace shardcomm::testing {
namespace {

using namespace tools;

TEST(BenchStatistics, MatchKnownSamples) {
  std::vector<double> hundred(101);
  std::iota(hundred.rbegin(), hundred.rend(), 0.0);  // 100 … 0
  const Statistics of_hundred = statistics_of(hundred);
  EXPECT_EQ(of_hundred.min, 0);
  EXPECT_EQ(of_hundred.max, 100);
  EXPECT_DOUBLE_EQ(of_hundred.median, 50);
  EXPECT_DOUBLE_EQ(of_hundred.p90, 90);
  EXPECT_DOUBLE_EQ(of_hundred.p99, 99);
  EXPECT_DOUBLE_EQ(of_hundred.mean, 50);
  const Statistics of_two = statistics_of({4, 2});
  EXPECT_DOUBLE_EQ(of_two.median, 3);
  EXPECT_DOUBLE_EQ(of_two.p90, 3.8);
  EXPECT_EQ(statistics_of({7}).p99, 7);
  EXPECT_EQ(statistics_of({}).max, 0);
  EXPECT_EQ(slowest_of(std::vector<double>{1, 9, 3, 4, 2, 6}, 3), (std::vector<double>{4, 9, 6}));
}

TEST(BenchSampling, ShortCallsAreTimedInBatches) {
  EXPECT_EQ(batch_for(2), 1);
  EXPECT_EQ(batch_for(100'000), 1);
  EXPECT_EQ(batch_for(1.99), 11);
  EXPECT_EQ(batch_for(0.5), 40);
  EXPECT_EQ(batch_for(0), 1000);
  EXPECT_EQ(samples_for(1e6, 1), kLeastSamples);
  EXPECT_EQ(samples_for(0.1, 200), kMostSamples);
  EXPECT_EQ(samples_for(2500, 1), 100);
}

size_t copied(const std::vector<Move>& moves) {
  size_t bytes = 0;
  for (const Move& move : moves) bytes += move.source >= 0 ? move.bytes : 0;
  return bytes;
}
size_t summed(const std::vector<Move>& moves) {
  size_t bytes = 0;
  for (const Move& move : moves) bytes += move.source < 0 ? move.bytes : 0;
  return bytes;
}

struct Least {
  size_t copied, summed;  // bytes of one rank
};

// As bench/limits.h has it: S = 4096 bytes on 4 ranks.
Least least_of(Collective collective, bool in_place, Rank rank) {
  switch (collective) {
    case Collective::kAllGather:
    case Collective::kAllGatherMany: return {in_place ? 3072u : 4096u, 0};
    case Collective::kReduceScatter:
    case Collective::kReduceScatterMany: return {0, 1024};
    case Collective::kAllReduce: return {3072, 1024};
    case Collective::kBroadcast:
    case Collective::kBroadcastMany: return {rank == 0 ? 0u : 4096u, 0};
    case Collective::kAllToAll:
    case Collective::kAllToAllV: return {4096, 0};
    case Collective::kGather: return {rank != 0 ? 0u : in_place ? 3072u : 4096u, 0};
    case Collective::kScatter: return {rank == 0 && in_place ? 0u : 1024u, 0};
    case Collective::kReduce: return {0, rank == 0 ? 4096u : 0u};
    default: return {0, 0};
  }
}

TEST(BenchLimits, MoveWhatTheCollectiveMust) {
  for (int i = 0; i < kCollectiveCount; ++i) {
    const auto collective = static_cast<Collective>(i);
    if (collective == Collective::kAllGatherV || collective == Collective::kReduceScatterV) continue;
    if (collective == Collective::kAllReduceMany) continue;  // rounds for each tensor: its own test
    for (const bool in_place : {false, true}) {
      if (in_place && !allows_in_place(collective)) continue;
      BenchSpec spec;
      spec.collective = collective;
      spec.in_place = in_place;
      for (Rank rank = 0; rank < 4; ++rank) {
        SCOPED_TRACE(std::string(name(collective)) + (in_place ? " in place" : "") + ", rank " + std::to_string(rank));
        const BenchLayout layout = make_layout(spec, rank, 4, 4096);
        const std::vector<Move> moves = moves_of(spec, layout, rank, 4);
        const Least least = least_of(collective, in_place, rank);
        EXPECT_EQ(copied(moves), least.copied);
        EXPECT_EQ(summed(moves), least.summed);
        for (const Move& move : moves) EXPECT_LE(move.to + move.bytes, layout.output_extent * 4);
      }
    }
  }
}

TEST(BenchLimits, RaggedShardsCountAsTheyAre) {
  BenchSpec spec;
  spec.collective = Collective::kAllGatherV;
  spec.in_place = true;
  spec.skew = 3;  // 1 : 3
  EXPECT_EQ(copied(moves_of(spec, make_layout(spec, 0, 2, 4096), 0, 2)), 3072u);
  EXPECT_EQ(copied(moves_of(spec, make_layout(spec, 1, 2, 4096), 1, 2)), 1024u);
  spec.collective = Collective::kReduceScatterV;
  EXPECT_EQ(summed(moves_of(spec, make_layout(spec, 0, 2, 4096), 0, 2)), 1024u);
  EXPECT_EQ(summed(moves_of(spec, make_layout(spec, 1, 2, 4096), 1, 2)), 3072u);
}

// Each tensor is divided by itself, so that its moves stay within it.
TEST(BenchLimits, ManyReductionsMoveEveryTensor) {
  BenchSpec spec;
  spec.collective = Collective::kAllReduceMany;
  for (Rank rank = 0; rank < 4; ++rank) {
    const BenchLayout layout = make_layout(spec, rank, 4, 4096);
    ASSERT_GT(layout.outputs.size(), 1u);
    const std::vector<Move> moves = moves_of(spec, layout, rank, 4);
    EXPECT_EQ(copied(moves) + summed(moves), 4096u);
    for (size_t i = 0; i < layout.outputs.size(); ++i) {
      size_t bytes = 0;
      const size_t begin = layout.outputs[i].at * 4, end = begin + layout.outputs[i].count * 4;
      for (const Move& move : moves) bytes += move.to >= begin && move.to < end ? move.bytes : 0;
      EXPECT_EQ(bytes, end - begin);
    }
  }
}

TEST(BenchLayout, PairsGiveWhatTheOtherTakes) {
  BenchSpec spec;
  spec.collective = Collective::kAllToAllV;
  for (Rank rank = 0; rank < 3; ++rank) {
    const BenchLayout layout = make_layout(spec, rank, 3, 4096);
    for (Rank peer = 0; peer < 3; ++peer) {
      const BenchLayout other = make_layout(spec, peer, 3, 4096);
      EXPECT_EQ(layout.counts[static_cast<size_t>(peer)], other.counts[static_cast<size_t>(rank)]);
    }
  }
}

TEST(BenchLimits, AMosaicMovesNothing) {
  BenchSpec spec;
  EXPECT_GT(bus_factor(spec, 2), 0);
  spec.memory = BenchMemory::kMosaic;
  EXPECT_TRUE(moves_of(spec, make_layout(spec, 0, 2, 1 << 20), 0, 2).empty());
  EXPECT_EQ(bus_factor(spec, 2), 0);
}

TEST(BenchLayout, RoundsAMosaicToWholePages) {
  const size_t page = MosaicWindow::granularity_bytes();
  for (const DType dtype : {DType::kU8, DType::kF32, DType::kF64}) {
    BenchSpec spec;
    spec.dtype = dtype;
    spec.memory = BenchMemory::kMosaic;
    for (const auto& [bytes, pages] : {std::pair{size_t{1}, 1u}, {3 * page, 1u}, {3 * page + 24, 2u}, {30 * page, 10u}})
      EXPECT_EQ(make_layout(spec, 1, 3, bytes).counts[0] * size_of(dtype), pages * page) << bytes;
  }
}

TEST(BenchLayout, HasTheTensorsAndTheSkewAskedFor) {
  BenchSpec spec;
  spec.collective = Collective::kAllGatherMany;
  spec.items = 1000;
  spec.skew = 1;
  const BenchLayout equal = make_layout(spec, 0, 2, 2 * 1000 * 1024);
  EXPECT_EQ(equal.counts, std::vector<size_t>(1000, 256));
  EXPECT_EQ(equal.whole_count, 2u * 1000 * 256);
  spec.skew = 0;
  spec.items = 4;
  EXPECT_EQ(make_layout(spec, 0, 1, 4000).counts, (std::vector<size_t>{100, 200, 300, 400}));
}

// Sizes and alignments around those of vectors; nothing beyond is written.
TEST(BenchStreams, CopyAndAddEveryByteAndNoOther) {
  constexpr std::byte kGuard{0x5A};
  for (const Loop loop : kLoops) {
    for (const size_t bytes : {0u, 1u, 4u, 31u, 128u, 516u, 4100u, 70000u}) {
      for (const size_t offset : {0u, 2u, 4u, 32u}) {
        SCOPED_TRACE(std::to_string(bytes) + " bytes at " + std::to_string(offset));
        std::vector<std::byte> from(bytes + offset + 1), to(bytes + offset + 64, kGuard);
        for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 7 + 1);
        stream_copy(to.data() + offset, from.data() + offset, bytes, loop);
        EXPECT_EQ(std::memcmp(to.data() + offset, from.data() + offset, bytes), 0);
        for (size_t i = 0; i < to.size(); ++i) {
          const bool outside = i < offset || i >= offset + bytes;
          ASSERT_TRUE(!outside || to[i] == kGuard) << i;
        }
        if (bytes % 4 != 0 || offset % 4 != 0) continue;
        for (const size_t count : {1u, 2u, 3u, 5u}) {
          std::vector<std::vector<float>> values(count, std::vector<float>(bytes / 4 + 1));
          std::vector<const std::byte*> sources;
          for (size_t s = 0; s < count; ++s) {
            for (size_t i = 0; i < values[s].size(); ++i) values[s][i] = static_cast<float>(i + 10 * s);
            sources.push_back(reinterpret_cast<const std::byte*>(values[s].data()));
          }
          std::fill(to.begin(), to.end(), kGuard);
          stream_add(to.data() + offset, sources, bytes, loop);
          for (size_t i = 0; i < bytes / 4; ++i) {
            float got = 0;
            std::memcpy(&got, to.data() + offset + 4 * i, 4);
            float expected = 0;
            for (const std::vector<float>& source : values) expected += source[i];
            ASSERT_EQ(got, expected) << i << " of " << count << " sources";
          }
          ASSERT_EQ(to[offset + bytes], kGuard);
        }
      }
    }
  }
}

std::string row_text(size_t bytes, double busbw, double median_us, const char* limit) {
  return "{\"bytes\": " + std::to_string(bytes) +
         ", \"dtype\": \"f32\", \"op\": \"none\", \"busbw\": " + std::to_string(busbw) +
         ", \"time_us\": {\"min\": 1, \"median\": " + std::to_string(median_us) +
         ", \"max\": 400, \"p90\": 300}, \"limit\": " + limit + "}";
}

std::string result_text(const std::vector<std::string>& rows) {
  std::string all;
  for (const std::string& row : rows) all += (all.empty() ? "" : ", ") + row;
  return R"({"collective": "all_gather", "ranks": 2, "mode": "threads", "memory": "window", "results": [)" + all + "]}";
}

struct Dot {
  double x, y;
  std::string title;
};

std::vector<Dot> dots_of(const std::string& svg) {
  std::vector<Dot> dots;
  for (size_t at = svg.find("<circle "); at != std::string::npos; at = svg.find("<circle ", at + 1)) {
    const auto value = [&](std::string_view before, char after) {
      const size_t begin = svg.find(before, at) + before.size();
      return svg.substr(begin, svg.find(after, begin) - begin);
    };
    dots.push_back({std::stod(value("cx=\"", '"')), std::stod(value("cy=\"", '"')), value("<title>", '<')});
  }
  return dots;
}

size_t times(const std::string& text, const std::string& word) {
  size_t count = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++count;
  return count;
}

TEST(BenchPlot, ShowsEveryPointOfEverySeriesAtItsPlace) {
  const std::string limit = R"({"kind": "copy", "us": 5, "busbw": 20, "percent": 50})";
  auto first = series_of(result_text({row_text(1024, 1, 10, limit.c_str()), row_text(4096, 2, 20, "null"),
                                      row_text(16384, 4, 40, "null")}),
                         "a<b>&\"c\"");
  auto second = series_of(result_text({row_text(1024, 8, 80, "null")}), "second");
  ASSERT_TRUE(first.ok() && second.ok());
  const std::string svg = plot_svg({*first, *second});
  EXPECT_EQ(xml_fault(svg), "");
  for (const char* once : {"a&lt;b&gt;&amp;&quot;c&quot;: all_gather f32, 2 ranks as threads, window</text>",
                           "second: all_gather f32, 2 ranks as threads, window</text>", ">GB/s<", ">us<"})
    EXPECT_EQ(times(svg, once), 1u) << once;
  EXPECT_EQ(times(svg, "class=\"legend\""), 2u);
  EXPECT_EQ(times(svg, "class=\"busbw\""), 2u);
  EXPECT_EQ(times(svg, "class=\"latency\""), 2u);
  EXPECT_EQ(times(svg, "class=\"busbw-limit\""), 1u);
  for (const char* tick : {">1K<", ">4K<", ">16K<", ">10<", ">20<"}) EXPECT_GE(times(svg, tick), 1u) << tick;

  const std::vector<Dot> dots = dots_of(svg);  // per panel, per series, per size
  ASSERT_EQ(dots.size(), 8u);
  EXPECT_NE(dots[1].title.find("4096 bytes: 2 GB/s"), std::string::npos) << dots[1].title;
  EXPECT_NE(dots[5].title.find("4096 bytes: 20 us"), std::string::npos) << dots[5].title;
  // Equal ratios are equal distances, to a tenth of a point.
  for (const size_t panel : {0u, 4u}) {
    EXPECT_NEAR(dots[panel + 1].x - dots[panel].x, dots[panel + 2].x - dots[panel + 1].x, 0.11);
    EXPECT_NEAR(dots[panel].y - dots[panel + 1].y, dots[panel + 1].y - dots[panel + 2].y, 0.11);
    EXPECT_GT(dots[panel].y, dots[panel + 1].y);
    EXPECT_EQ(dots[panel].x, dots[panel + 3].x);
    // The fourth is 8 times the first, the third 4 times.
    EXPECT_NEAR((dots[panel].y - dots[panel + 3].y) / (dots[panel].y - dots[panel + 2].y), 1.5, 0.01);
  }
}

TEST(BenchPlot, NamesThePeer) {
  std::string text = result_text({row_text(8, 1, 10, "null")});
  text.insert(1, R"("program": "Open MPI v4.1.4", )");
  auto series = series_of(text, "x.json");
  ASSERT_TRUE(series.ok());
  EXPECT_EQ(series->name, "x.json: Open MPI v4.1.4, all_gather f32, 2 ranks as threads, window");
}

TEST(BenchPlot, SurvivesWhatALogarithmCannotShow) {
  auto one = series_of(result_text({row_text(8, 0, 10, "null")}), "one rank");
  auto none = series_of(result_text({}), "nothing");
  ASSERT_TRUE(one.ok() && none.ok());
  for (const std::string& svg : {plot_svg({*one}), plot_svg({*none}), plot_svg({})}) {
    EXPECT_EQ(xml_fault(svg), "");
    EXPECT_EQ(svg.find("nan"), std::string::npos);
    EXPECT_EQ(svg.find("inf"), std::string::npos);
  }
  EXPECT_EQ(dots_of(plot_svg({*one})).size(), 1u);  // its time
}

TEST(BenchPlot, NamesAFileThatIsNotAResult) {
  for (const char* text : {"", "{", "[]", "{\"collective\": 3}", "{\"collective\": \"barrier\", \"results\": 5}"}) {
    auto series = series_of(text, "file.json");
    ASSERT_FALSE(series.ok()) << text;
    EXPECT_NE(series.status().to_string().find("file.json: no results of a bench"), std::string::npos);
  }
  EXPECT_NE(read_series("/no/such.json").status().to_string().find("No such file"), std::string::npos);
}

}  // namespace
}  // namespace shardcomm::testing
