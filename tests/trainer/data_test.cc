// The trainer's data order, initial weights, learning rate, tokenizer and sampler: what must not depend on the number
// of ranks, on how work is split, or on where a run was interrupted.
#include "tools/trainer/data.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <random>
#include <set>

#include "tools/trainer/init.h"
#include "tools/trainer/learning_rate.h"
#include "tools/trainer/order.h"
#include "tools/trainer/sampler.h"

namespace shardcomm::trainer {
namespace {

namespace fs = std::filesystem;

// ---- Order

TEST(Permutation, TakesEveryIndexOnceAtEverySize) {
  for (const uint64_t n : std::vector<uint64_t>{1, 2, 3, 4, 5, 16, 17, 100, 1000, 4096, 4097, 70000}) {
    const Permutation permutation(n, n * 31 + 7);
    std::vector<bool> seen(n, false);
    uint64_t fixed = 0;
    for (uint64_t i = 0; i < n; ++i) {
      const uint64_t p = permutation(i);
      ASSERT_LT(p, n);
      ASSERT_FALSE(seen[p]) << "twice, at size " << n;
      seen[p] = true;
      fixed += p == i;
    }
    EXPECT_TRUE(n < 1000 || fixed < 12) << "hardly shuffled at size " << n;  // one is expected, independent of n
  }
}

// Neighbours end up far apart: the mean distance of a random order of n is n/3.
TEST(Permutation, Shuffles) {
  const uint64_t n = 10000;
  const Permutation permutation(n, 5);
  double distance = 0;
  for (uint64_t i = 0; i + 1 < n; ++i) {
    distance += std::fabs(static_cast<double>(permutation(i)) - static_cast<double>(permutation(i + 1)));
  }
  EXPECT_NEAR(distance / static_cast<double>(n), static_cast<double>(n) / 3, static_cast<double>(n) * 0.02);
}

TEST(Order, EveryEpochIsAnotherPermutation) {
  const uint64_t samples = 211;
  std::vector<std::vector<uint64_t>> epochs(3);
  for (uint64_t position = 0; position < 3 * samples; ++position) {
    epochs[position / samples].push_back(sample_at(position, samples, 9));
  }
  EXPECT_NE(epochs[0], epochs[1]);
  EXPECT_NE(epochs[1], epochs[2]);
  for (auto& epoch : epochs) {
    std::sort(epoch.begin(), epoch.end());
    for (uint64_t i = 0; i < samples; ++i) ASSERT_EQ(epoch[i], i);
  }
  EXPECT_NE(sample_at(0, 1 << 20, 1), sample_at(0, 1 << 20, 2)) << "the seed does not matter";
}

TEST(Order, SlicesOfAnyWorldAreTheBatch) {
  for (const size_t batch : std::vector<size_t>{1, 2, 7, 12, 16}) {
    for (int size = 1; size <= 5; ++size) {
      uint64_t next = 1000;
      for (int rank = 0; rank < size; ++rank) {
        const Slice slice = rank_slice(1000, batch, {rank, size});
        EXPECT_EQ(slice.first, next);
        EXPECT_LE(slice.count, batch / static_cast<size_t>(size) + 1);
        next += slice.count;
      }
      EXPECT_EQ(next, 1000 + batch);
    }
  }
}

// ---- Data

class DataTest : public testing::Test {
 protected:
  void SetUp() override {
    dir_ = fs::temp_directory_path() / ("shardcomm_data_test_" + std::to_string(getpid()));
    fs::create_directories(dir_);
  }
  void TearDown() override { fs::remove_all(dir_); }
  std::string write(const std::string& name, const std::string& bytes) {
    const fs::path path = dir_ / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << bytes;
    return path.string();
  }
  // Every token says where it stands: the text counts in base 256 over 10 kB, so samples can be recognized.
  std::string counting(size_t bytes) {
    std::mt19937 rng(3);
    std::string text;
    while (text.size() < bytes) text.push_back(static_cast<char>(rng()));
    return text;
  }
  fs::path dir_;
  ByteTokenizer tokenizer_;
};

TEST_F(DataTest, TheGlobalBatchIsTheSameForEveryWorldSizeAndResume) {
  const std::string file = write("a.txt", counting(5000));
  const auto loaded = Data::load({.files = {file}, .seq = 16, .seed = 4}, tokenizer_);
  ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
  const Data& data = loaded.value();
  ASSERT_EQ(data.train_samples(), (5001 - 500 - 1) / 16u);
  const size_t batch = 12;

  // All tokens of steps 0..59 (more than two epochs), at one world size per step.
  const auto run = [&](const std::vector<int>& sizes) {
    std::vector<int32_t> tokens;
    uint64_t consumed = 0;
    for (const int size : sizes) {
      for (int rank = 0; rank < size; ++rank) {
        const Slice slice = rank_slice(consumed, batch, {rank, size});
        Samples samples;
        data.train(slice.first, slice.count, &samples);
        EXPECT_EQ(samples.tokens.size(), slice.count * 16);
        tokens.insert(tokens.end(), samples.tokens.begin(), samples.tokens.end());
      }
      consumed += batch;
    }
    return tokens;
  };
  const std::vector<int32_t> alone = run(std::vector<int>(60, 1));
  EXPECT_EQ(alone, run(std::vector<int>(60, 4)));
  EXPECT_EQ(alone, run(std::vector<int>(60, 5)));
  std::vector<int> resumed(20, 4);
  resumed.resize(37, 3);
  resumed.resize(60, 1);
  EXPECT_EQ(alone, run(resumed));

  // No repeat, no skip: the first epoch holds every sample once.
  std::multiset<std::vector<int32_t>> seen, all;
  for (uint64_t i = 0; i < data.train_samples(); ++i) {
    const auto at = alone.begin() + static_cast<std::ptrdiff_t>(i * 16);
    seen.insert(std::vector<int32_t>(at, at + 16));
    const std::string text = counting(5000).substr(i * 16, 16);
    std::vector<int32_t> sample;
    for (const char c : text) sample.push_back(static_cast<unsigned char>(c));
    all.insert(sample);
  }
  EXPECT_EQ(seen, all);
}

TEST_F(DataTest, TargetsFollowTokensAndFilesEndInEndOfText) {
  const std::string a = write("a.txt", "abc");
  const std::string b = write("b.txt", std::string("\0\xff", 2));
  const auto loaded = Data::load({.files = {a, b}, .validation_files = {b, a}, .seq = 3}, tokenizer_);
  ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
  EXPECT_EQ(loaded.value().train_tokens(), 7u);
  EXPECT_EQ(loaded.value().validation_samples(), 2u);
  Samples samples;
  loaded.value().validation(0, 2, &samples);
  EXPECT_EQ(samples.tokens, (std::vector<int32_t>{0, 255, 256, 97, 98, 99}));
  EXPECT_EQ(samples.targets, (std::vector<int32_t>{255, 256, 97, 98, 99, 256}));
}

TEST_F(DataTest, LastTenthIsKeptForValidation) {
  std::string text(900, 't');
  text += std::string(100, 'v');
  const auto loaded = Data::load({.files = {write("a", text)}, .seq = 10}, tokenizer_);
  ASSERT_TRUE(loaded.ok());
  EXPECT_EQ(loaded.value().train_tokens(), 901u);
  EXPECT_EQ(loaded.value().validation_tokens(), 100u);
  Samples samples;
  loaded.value().validation(0, loaded.value().validation_samples(), &samples);
  EXPECT_EQ(std::count(samples.tokens.begin(), samples.tokens.end(), 't'), 0);
}

TEST_F(DataTest, ErrorsNameFileAndNeed) {
  const auto refused = [&](const DataOptions& options, const std::string& what) {
    const auto loaded = Data::load(options, tokenizer_);
    ASSERT_FALSE(loaded.ok());
    EXPECT_NE(loaded.status().to_string().find(what), std::string::npos) << loaded.status().to_string();
  };
  refused({}, "no data file");
  refused({.files = {"/nonexistent/file"}}, "/nonexistent/file");
  refused({.files = {dir_.string()}}, dir_.string());
  refused({.files = {write("short", "abc")}, .validation_files = {write("v", std::string(500, 'x'))}, .seq = 128},
          "the training text has 4 tokens; one sample takes 129");
  refused({.files = {write("medium", std::string(400, 'x'))}, .seq = 128}, "validation");
  refused({.files = {write("empty", "")}, .seq = 8}, "has 1 tokens");
}

TEST_F(DataTest, ListsSourcesInAFixedOrder) {
  for (const char* name : {"z.cc", "a/b.h", "a/c.bin", ".git/x.h", "build-x/y.cc", "README.md", "src/CMakeLists.txt"}) {
    write(name, "x");
  }
  const auto listed = list_text_files(dir_.string());
  ASSERT_TRUE(listed.ok()) << listed.status().to_string();
  std::vector<std::string> relative;
  for (const auto& path : listed.value()) relative.push_back(fs::relative(path, dir_).string());
  EXPECT_EQ(relative, (std::vector<std::string>{"README.md", "a/b.h", "src/CMakeLists.txt", "z.cc"}));
  EXPECT_FALSE(list_text_files((dir_ / "none").string()).ok());
  fs::create_directories(dir_ / "bare");
  EXPECT_FALSE(list_text_files((dir_ / "bare").string()).ok());
}

TEST(Tokenizer, GivesBackWhatItTook) {
  const ByteTokenizer tokenizer;
  std::string all(256, ' ');
  std::iota(all.begin(), all.end(), '\0');
  const std::vector<Token> tokens = tokenizer.encode(all);
  std::vector<int32_t> wide(tokens.begin(), tokens.end());
  EXPECT_EQ(*std::max_element(wide.begin(), wide.end()), 255);
  EXPECT_EQ(tokenizer.decode(wide), all);
  wide.push_back(tokenizer.end_of_text());
  EXPECT_EQ(tokenizer.decode(wide), all);
  EXPECT_LT(tokenizer.end_of_text(), tokenizer.size());
}

// ---- Initial weights

TEST(Init, DoesNotDependOnTheSplit) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::vector<float> whole(1003);
  fill_initial({seed, "h.0.attn.c_attn.weight", 0}, {0.5f, 0.02f}, whole);
  std::mt19937 rng(static_cast<unsigned>(seed));
  std::vector<float> parts(whole.size(), NAN);
  for (size_t at = 0; at < parts.size();) {
    const size_t count = std::min<size_t>(rng() % 40, parts.size() - at);
    fill_initial({seed, "h.0.attn.c_attn.weight", at}, {0.5f, 0.02f}, std::span(parts).subspan(at, count));
    at += count;
  }
  EXPECT_EQ(whole, parts);
  std::vector<float> other(whole.size());
  fill_initial({seed, "h.1.attn.c_attn.weight", 0}, {0.5f, 0.02f}, other);
  EXPECT_NE(whole, other);
  fill_initial({seed + 1, "h.0.attn.c_attn.weight", 0}, {0.5f, 0.02f}, other);
  EXPECT_NE(whole, other);
}

TEST(Init, IsNormalAndUncorrelated) {
  std::vector<float> x(200000);
  fill_initial({1, "w", 0}, {1.0f, 2.0f}, x);
  double mean = 0, square = 0, fourth = 0, neighbours = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double z = (static_cast<double>(x[i]) - 1) / 2;
    mean += z;
    square += z * z;
    fourth += z * z * z * z;
    if (i > 0) neighbours += z * (static_cast<double>(x[i - 1]) - 1) / 2;
  }
  const auto n = static_cast<double>(x.size());
  EXPECT_NEAR(mean / n, 0, 5 / std::sqrt(n));
  EXPECT_NEAR(square / n, 1, 5 * std::sqrt(2 / n));
  EXPECT_NEAR(fourth / n, 3, 5 * std::sqrt(96 / n));
  EXPECT_NEAR(neighbours / n, 0, 5 / std::sqrt(n));
  fill_initial({1, "w", 3}, {1.0f, 0.0f}, x);
  EXPECT_EQ(std::count(x.begin(), x.end(), 1.0f), static_cast<std::ptrdiff_t>(x.size()));
}

// ---- LearningRate

TEST(LearningRate, WarmsUpAndComesDown) {
  const auto rate = [](Decay decay, uint64_t step) {
    return LearningRate{.decay = decay, .peak = 2, .min_ratio = 0.1, .warmup = 10, .steps = 110}.at(step);
  };
  for (const Decay decay : {Decay::kCosine, Decay::kLinear, Decay::kConstant, Decay::kWsd}) {
    EXPECT_DOUBLE_EQ(rate(decay, 0), 0.2);
    EXPECT_DOUBLE_EQ(rate(decay, 9), 2);
    EXPECT_DOUBLE_EQ(rate(decay, 10), 2);
    for (uint64_t step = 10; step < 130; ++step) EXPECT_LE(rate(decay, step + 1), rate(decay, step));
    EXPECT_DOUBLE_EQ(rate(decay, 1000), decay == Decay::kConstant ? 2 : 0.2);
  }
  EXPECT_DOUBLE_EQ(rate(Decay::kCosine, 60), 1.1);
  EXPECT_DOUBLE_EQ(rate(Decay::kLinear, 35), 0.2 + 1.8 * 0.75);
  EXPECT_DOUBLE_EQ(rate(Decay::kWsd, 88), 2);
  EXPECT_DOUBLE_EQ(rate(Decay::kWsd, 99), 1.1);
  EXPECT_DOUBLE_EQ((LearningRate{.peak = 1, .warmup = 0, .steps = 1}.at(0)), 1);
  EXPECT_DOUBLE_EQ((LearningRate{.peak = 1, .warmup = 20, .steps = 5}.at(4)), 0.25);  // stopped while still warming up
}

TEST(LearningRate, NamesItsDecaysAndItsLimits) {
  EXPECT_EQ(parse_decay("wsd").value(), Decay::kWsd);
  EXPECT_EQ(parse_decay("cosine").value(), Decay::kCosine);
  EXPECT_NE(parse_decay("step").status().to_string().find("cosine, linear, constant, wsd"), std::string::npos);
  EXPECT_FALSE(validate(LearningRate{.peak = 0}).ok());
  EXPECT_FALSE(validate(LearningRate{.peak = NAN}).ok());
  EXPECT_FALSE(validate(LearningRate{.min_ratio = 1.5}).ok());
  EXPECT_TRUE(validate(LearningRate{}).ok());
}

// ---- Sampler

TEST(Sampler, FollowsTheDistribution) {
  const std::vector<float> logits = {std::log(0.5f), std::log(0.3f), std::log(0.2f), -INFINITY, NAN};
  Sampler sampler({.temperature = 1, .seed = 3});
  std::vector<int> counts(logits.size());
  for (int i = 0; i < 20000; ++i) ++counts[static_cast<size_t>(sampler.next(logits))];
  EXPECT_NEAR(counts[0], 10000, 400);
  EXPECT_NEAR(counts[1], 6000, 400);
  EXPECT_NEAR(counts[2], 4000, 400);
  EXPECT_EQ(counts[3] + counts[4], 0);
}

TEST(Sampler, IsDeterministicAndKeepsToTopK) {
  std::mt19937 rng(1);
  std::normal_distribution<float> normal;
  std::vector<float> logits(257);
  for (float& x : logits) x = normal(rng);
  const auto draw = [&](SamplerOptions options) {
    Sampler sampler(options);
    std::vector<int32_t> tokens(200);
    for (int32_t& t : tokens) t = sampler.next(logits);
    return tokens;
  };
  EXPECT_EQ(draw({.seed = 5}), draw({.seed = 5}));
  EXPECT_NE(draw({.seed = 5}), draw({.seed = 6}));
  const auto best = static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  EXPECT_EQ(draw({.temperature = 0}), std::vector<int32_t>(200, best));
  EXPECT_EQ(draw({.top_k = 1}), std::vector<int32_t>(200, best));
  std::vector<float> sorted = logits;
  std::sort(sorted.rbegin(), sorted.rend());
  const auto top = draw({.temperature = 5, .top_k = 4});
  EXPECT_EQ(std::set<int32_t>(top.begin(), top.end()).size(), 4u);
  for (const int32_t t : top) EXPECT_GE(logits[static_cast<size_t>(t)], sorted[3]);
  EXPECT_FALSE(validate(SamplerOptions{.temperature = -1}).ok());
  EXPECT_FALSE(validate(SamplerOptions{.temperature = INFINITY}).ok());
}

}  // namespace
}  // namespace shardcomm::trainer
