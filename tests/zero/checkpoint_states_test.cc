// What a checkpoint keeps beside the parameters: nothing, AdamW, or the states of an optimizer of one's own, at every
// world size, stage and division into buckets.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "shardcomm/checkpoint.h"
#include "tests/support/failure.h"
#include "tests/zero/model.h"

namespace shardcomm::testing {
namespace {

namespace fs = std::filesystem;

class Directory {
 public:
  Directory()
      : path_(fs::temp_directory_path() / ("states-" + std::to_string(getpid()) + "-" + std::to_string(made_++))) {
    fs::remove_all(path_);
  }
  ~Directory() { fs::remove_all(path_); }
  std::string path() const { return path_; }

 private:
  static inline int made_ = 0;
  fs::path path_;
};

struct Place {
  int ranks;
  ZeroOptions options;
};

const ModelShape kMixed{.frozen_block = true, .matrices = DType::kBF16};

// An array over the engine's trainable pieces, whose elements say where they belong and in which array.
std::vector<float> array_of(const ZeroEngine& engine, float which) {
  std::vector<float> values(engine.optimized_count(), -1);
  for (const ShardPiece& piece : engine.pieces()) {
    if (piece.master == nullptr) continue;
    for (size_t i = 0; i < piece.count; ++i) {
      values[piece.state_offset + i] = which * 1e6f + static_cast<float>(piece.unit * 10 + piece.parameter) * 1e4f +
                                       static_cast<float>(piece.offset + i);
    }
  }
  return values;
}

void expect_pieces_equal(const ZeroEngine& engine, const std::vector<float>& got, const std::vector<float>& expected) {
  for (const ShardPiece& piece : engine.pieces()) {
    if (piece.master == nullptr) continue;
    for (size_t i = 0; i < piece.count; ++i)
      ASSERT_EQ(got[piece.state_offset + i], expected[piece.state_offset + i])
          << "unit " << piece.unit << ", parameter " << piece.parameter << ", element " << piece.offset + i;
  }
}

std::string saved_in(const Directory& directory) { return directory.path() + "/step-00000007"; }

void save_states(const Place& place, const std::string& dir) {
  run_ranks(place.ranks, RankMode::kThreads, [&](RankContext& rank) {
    Communicator comm = rank.communicator();
    ZeroEngine engine = must(ZeroEngine::create(comm, model_units(kMixed), place.options));
    must(fill_with_noise(engine));
    std::vector<float> momentum = array_of(engine, 1), age = array_of(engine, 2);
    const auto saved = save_checkpoint(
        engine, dir, 7, {.states = {{"momentum", momentum}, {"age.x-1", age}}, .trainer_state = R"({"epoch":3})"});
    ASSERT_TRUE(saved.ok()) << saved.status().to_string();
  });
}

const Place kPlaces[] = {
    {1, {.stage = 0}}, {2, {.stage = 3, .bucket_bytes = 256}}, {3, {.stage = 1}},
    {4, {.stage = 3}}, {3, {.stage = 2, .bucket_bytes = 512}},
};

TEST(NamedStates, LoadAtEveryOtherWorldSizeStageAndBucketSize) {
  for (const Place& from : kPlaces) {
    const Directory directory;
    save_states(from, directory.path());
    for (const Place& to : kPlaces) {
      SCOPED_TRACE(::testing::Message() << "from " << from.ranks << " ranks, stage " << from.options.stage << ", to "
                                        << to.ranks << " ranks, stage " << to.options.stage);
      run_ranks(to.ranks, RankMode::kThreads, [&](RankContext& rank) {
        Communicator comm = rank.communicator();
        ZeroEngine engine = must(ZeroEngine::create(comm, model_units(kMixed), to.options));
        must(fill_with_noise(engine));
        const std::vector<std::vector<float>> parameters = all_parameters(engine);
        must(engine.fill_parameters(
            [](UnitId, uint32_t, size_t, std::span<float> values) { std::fill(values.begin(), values.end(), 0.0f); }));
        std::vector<float> momentum(engine.optimized_count()), age(engine.optimized_count());
        const auto loaded =
            load_checkpoint(engine, saved_in(directory), {.states = {{"age.x-1", age}, {"momentum", momentum}}});
        ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
        EXPECT_EQ(loaded->step, 7u);
        EXPECT_EQ(loaded->trainer_state, R"({"epoch":3})");
        expect_pieces_equal(engine, momentum, array_of(engine, 1));
        expect_pieces_equal(engine, age, array_of(engine, 2));
        EXPECT_EQ(all_parameters(engine), parameters);
      });
    }
  }
}

TEST(NamedStates, OfProcessesLoadToo) {
  const Directory directory;
  const auto body = [&](RankContext& rank, bool saves) {
    Communicator comm = rank.communicator();
    ZeroEngine engine = must(ZeroEngine::create(comm, model_units(kMixed), {.stage = 3, .bucket_bytes = 300}));
    must(fill_with_noise(engine));
    std::vector<float> momentum = array_of(engine, saves ? 1 : 9);
    const std::vector<NamedState> states = {{"momentum", momentum}};
    const Status status = saves ? save_checkpoint(engine, directory.path(), 7, {.states = states}).status()
                                : load_checkpoint(engine, saved_in(directory), {.states = states}).status();
    ASSERT_TRUE(status.ok()) << status.to_string();
    expect_pieces_equal(engine, momentum, array_of(engine, 1));
  };
  run_ranks(2, RankMode::kProcesses, [&](RankContext& rank) { body(rank, true); });
  run_ranks(3, RankMode::kProcesses, [&](RankContext& rank) { body(rank, false); });
}

TEST(NamedStates, AreNotNeededForParametersAlone) {
  const Directory directory;
  run_ranks(2, RankMode::kThreads, [&](RankContext& rank) {
    Communicator comm = rank.communicator();
    ZeroEngine engine = must(ZeroEngine::create(comm, model_units(kMixed), {.stage = 3}));
    must(fill_with_noise(engine));
    const auto parameters = all_parameters(engine);
    ASSERT_TRUE(save_checkpoint(engine, directory.path(), 7).ok());
    must(engine.fill_parameters(
        [](UnitId, uint32_t, size_t, std::span<float> values) { std::fill(values.begin(), values.end(), 0.0f); }));
    const auto loaded = load_checkpoint(engine, saved_in(directory));
    ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
    EXPECT_EQ(all_parameters(engine), parameters);
    // AdamW cannot go on from it.
    AdamW adam = must(AdamW::create(engine, {}));
    EXPECT_TRUE(failed_with(load_checkpoint(engine, adam, saved_in(directory)).status(), Code::kInvalidArgument,
                            {"lacks states [m, v]", "saved without AdamW"}));
  });
  const auto info = must(inspect_checkpoint(saved_in(directory)));
  EXPECT_TRUE(info.states.empty());
  EXPECT_EQ(info.optimizer, "");
  EXPECT_TRUE(verify_checkpoint(saved_in(directory)).ok());
}

// A checkpoint of AdamW and a further state: what each call asks for, and what it is told.
TEST(NamedStates, MustBeAskedForUnlessTheyAreIgnored) {
  const Directory directory;
  run_ranks(2, RankMode::kThreads, [&](RankContext& rank) {
    Communicator comm = rank.communicator();
    ZeroEngine engine = must(ZeroEngine::create(comm, model_units(kMixed), {.stage = 2}));
    must(fill_with_noise(engine));
    AdamW adam = must(AdamW::create(engine, {}));
    adam.set_steps(5);
    std::vector<float> extra = array_of(engine, 4), other(engine.optimized_count());
    ASSERT_TRUE(save_checkpoint(engine, directory.path(), 7, {.optimizer = &adam, .states = {{"extra", extra}}}).ok());
    const std::string path = saved_in(directory);
    const auto refused = [&](const LoadCheckpointArgs& args, const std::vector<std::string_view>& words) {
      EXPECT_TRUE(failed_with(load_checkpoint(engine, path, args).status(), Code::kInvalidArgument, words));
    };
    refused({.optimizer = &adam}, {"states [extra]", "were not asked for", "ignore_other_states"});
    refused({.states = {{"extra", other}}}, {"[m, v]", "were not asked for"});
    refused({.optimizer = &adam, .states = {{"extra", other}, {"more", other}}}, {"lacks states [more]"});
    refused({.states = {{"extra", std::span(other).first(1)}}}, {"'extra' has 1 elements", "optimized_count()"});
    adam.set_steps(0);
    ASSERT_TRUE(load_checkpoint(engine, path, {.optimizer = &adam, .ignore_other_states = true}).ok());
    EXPECT_EQ(adam.steps(), 5u);
    ASSERT_TRUE(load_checkpoint(engine, path, {.optimizer = &adam, .states = {{"extra", other}}}).ok());
    expect_pieces_equal(engine, other, extra);
    ASSERT_TRUE(load_checkpoint(engine, path, {.ignore_other_states = true}).ok());
  });
  const auto info = must(inspect_checkpoint(saved_in(directory)));
  EXPECT_EQ(info.states, (std::vector<std::string>{"extra", "m", "v"}));
  EXPECT_EQ(info.optimizer, "adamw");
  EXPECT_EQ(info.optimizer_steps, 5u);
}

TEST(NamedStates, WrongOnesAreRefusedOnEveryRank) {
  const Directory directory;
  run_ranks(2, RankMode::kThreads, [&](RankContext& rank) {
    Communicator comm = rank.communicator();
    ZeroEngine engine = must(ZeroEngine::create(comm, model_units(kMixed), {.stage = 3}));
    must(fill_with_noise(engine));
    AdamW adam = must(AdamW::create(engine, {}));
    std::vector<float> values(engine.optimized_count());
    const auto refused = [&](const SaveCheckpointArgs& args, Code code, const std::vector<std::string_view>& words) {
      EXPECT_TRUE(failed_with(save_checkpoint(engine, directory.path(), 7, args).status(), code, words));
    };
    refused({.states = {{"", values}}}, Code::kInvalidArgument, {"a state is named ''"});
    refused({.states = {{"a/b", values}}}, Code::kInvalidArgument, {"'a/b'"});
    refused({.states = {{"a", values}, {"a", values}}}, Code::kInvalidArgument, {"two states are named 'a'"});
    refused({.optimizer = &adam, .states = {{"m", values}}}, Code::kInvalidArgument, {"two states are named 'm'"});
    refused({.states = {{"a", std::span(values).first(3)}}}, Code::kInvalidArgument, {"'a' has 3 elements"});
    const std::string own = rank.rank() == 0 ? "left" : "right";
    refused({.states = {{own, values}}}, Code::kFailedPrecondition, {"rank 0 gives [left]", "rank 1 gives [right]"});
    EXPECT_FALSE(fs::exists(saved_in(directory)));
  });
}

TEST(FrozenModels, HaveNothingForAdamW) {
  run_ranks(1, RankMode::kThreads, [](RankContext& rank) {
    Communicator comm = rank.communicator();
    const UnitSpec units[] = {{"u", {{.name = "w", .shape = {8}, .trainable = false}}}};
    ZeroEngine engine = must(ZeroEngine::create(comm, units, {}));
    EXPECT_TRUE(failed_with(AdamW::create(engine, {}).status(), Code::kInvalidArgument,
                            {"every parameter of the engine is frozen", "shardcomm_tensor_init"}));
  });
}

}  // namespace
}  // namespace shardcomm::testing
