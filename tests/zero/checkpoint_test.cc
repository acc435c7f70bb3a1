// Checkpoints of a small model: resumed bit for bit, at other world sizes and stages; damaged, interrupted and failing
// ones.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <random>

#include "shardcomm/checkpoint.h"
#include "tests/support/rank_group.h"
#include "tests/zero/model.h"
#include "zero/checkpoint/file_io.h"
#include "zero/checkpoint/manifest.h"

namespace shardcomm::testing {
namespace {

namespace fs = std::filesystem;
const StreamRef kCaller = StreamRef::caller();

class Directory {
 public:
  Directory()
      : path_(fs::temp_directory_path() / ("checkpoint-" + std::to_string(getpid()) + "-" + std::to_string(made_++))) {
    fs::remove_all(path_);
  }
  ~Directory() { fs::remove_all(path_); }
  std::string path() const { return path_; }

 private:
  static inline int made_ = 0;
  fs::path path_;
};

// An engine with its optimizer, filled with noise.
struct Trainee {
  Trainee(Communicator& comm, const ModelShape& model, const ZeroOptions& options)
      : shape(model),
        engine(must(ZeroEngine::create(comm, model_units(model), options))),
        adam(must(AdamW::create(engine, {}))) {
    must(fill_with_noise(engine));
  }
  Trajectory run(uint64_t first, uint64_t steps) {
    return train(engine, adam, shape, {.first_step = first, .steps = steps}, kCaller);
  }
  ModelShape shape;
  ZeroEngine engine;
  AdamW adam;
};

const ModelShape kMixed{.frozen_block = true, .matrices = DType::kBF16};

// Ten steps, and after five of them a checkpoint in `dir`.
Trajectory train_and_save(Communicator& comm, const ModelShape& shape, const ZeroOptions& options,
                          const std::string& dir) {
  Trainee trainee(comm, shape, options);
  Trajectory all = trainee.run(0, 5);
  const std::string path = must(save_checkpoint(trainee.engine, trainee.adam, dir, 5, R"({"position": 60})"));
  EXPECT_EQ(path, dir + "/step-00000005");
  const Trajectory rest = trainee.run(5, 5);
  all.losses.insert(all.losses.end(), rest.losses.begin(), rest.losses.end());
  all.norms.insert(all.norms.end(), rest.norms.begin(), rest.norms.end());
  return all;
}

Trajectory resume(Communicator& comm, const ModelShape& shape, const ZeroOptions& options, const std::string& dir) {
  Trainee trainee(comm, shape, options);
  trainee.run(77, 2);  // what was there before must not matter
  const std::string path = must(newest_checkpoint(dir));
  const LoadedCheckpoint loaded = must(load_checkpoint(trainee.engine, trainee.adam, path));
  EXPECT_EQ(loaded.step, 5u);
  EXPECT_EQ(loaded.trainer_state, R"({"position":60})");
  EXPECT_EQ(trainee.adam.steps(), 5u);
  return trainee.run(5, 5);
}

TEST(Checkpoint, FivePlusFiveStepsAreTenBitForBit) {
  for (const int stage : {0, 1, 2, 3}) {
    Directory directory;
    run_ranks(2, RankMode::kThreads, [&](RankContext& rank) {
      Communicator comm = rank.communicator("log=error");
      const ZeroOptions options{.stage = stage, .bucket_bytes = 4096};
      const Trajectory all = train_and_save(comm, kMixed, options, directory.path());
      // Another stage reads it as well.
      for (const int other : {stage, 3 - stage}) {
        const Trajectory rest = resume(comm, kMixed, {.stage = other}, directory.path());
        EXPECT_TRUE(std::equal(rest.losses.begin(), rest.losses.end(), all.losses.begin() + 5))
            << stage << " to " << other;
        EXPECT_TRUE(std::equal(rest.norms.begin(), rest.norms.end(), all.norms.begin() + 5))
            << stage << " to " << other;
      }
    });
    EXPECT_TRUE(verify_checkpoint(directory.path() + "/step-00000005").ok());
  }
}

TEST(Checkpoint, LoadsAtAnyWorldSize) {
  for (const int writers : {4, 1}) {
    Directory directory;
    std::vector<double> expected;
    run_ranks(writers, RankMode::kThreads, [&](RankContext& rank) {
      Communicator comm = rank.communicator("log=error");
      const Trajectory all = train_and_save(comm, {}, {.stage = 3}, directory.path());
      if (rank.rank() == 0) expected = all.losses;
    });
    for (const int readers : {1, 2, 3, 4, 6}) {
      run_ranks(readers, RankMode::kThreads, [&](RankContext& rank) {
        Communicator comm = rank.communicator("log=error");
        const Trajectory rest = resume(comm, {}, {.stage = 3}, directory.path());
        for (size_t i = 0; i < 5; ++i)
          EXPECT_NEAR(rest.losses[i] / expected[5 + i], 1, 1e-5) << writers << " to " << readers;
      });
    }
  }
}

// Buckets decide who owns which elements; a checkpoint does not depend on them.
TEST(Checkpoint, LoadsAtAnyBucketSize) {
  for (const size_t written : {size_t{0}, size_t{600}}) {
    Directory directory;
    Trajectory expected;
    run_ranks(3, RankMode::kThreads, [&](RankContext& rank) {
      Communicator comm = rank.communicator("log=error");
      const Trajectory all = train_and_save(comm, kMixed, {.stage = 3, .bucket_bytes = written}, directory.path());
      if (rank.rank() == 0) expected = all;
    });
    EXPECT_TRUE(verify_checkpoint(directory.path() + "/step-00000005").ok());
    for (const size_t read : {size_t{0}, size_t{128}, size_t{600}, size_t{4096}}) {
      for (const int stage : {0, 2, 3}) {
        run_ranks(3, RankMode::kThreads, [&](RankContext& rank) {
          Communicator comm = rank.communicator("log=error");
          const Trajectory rest = resume(comm, kMixed, {.stage = stage, .bucket_bytes = read}, directory.path());
          EXPECT_TRUE(std::equal(rest.losses.begin(), rest.losses.end(), expected.losses.begin() + 5))
              << written << " to " << read << " at stage " << stage;
        });
      }
    }
    for (const int readers : {1, 2, 4}) {
      run_ranks(readers, RankMode::kThreads, [&](RankContext& rank) {
        Communicator comm = rank.communicator("log=error");
        const Trajectory rest = resume(comm, kMixed, {.stage = 3, .bucket_bytes = 1024}, directory.path());
        for (size_t i = 0; i < 5; ++i) EXPECT_NEAR(rest.losses[i] / expected.losses[5 + i], 1, 1e-5) << readers;
      });
    }
  }
}

// Runs of a cut parameter lie in a file one behind the other, under its name.
TEST(Checkpoint, KeepsSeveralRunsOfAParameterInAFile) {
  for (const int stage : {0, 1, 3}) {
    Directory directory;
    run_ranks(2, RankMode::kThreads, [&](RankContext& rank) {
      Communicator comm = rank.communicator("log=error");
      Trainee trainee(comm, {}, {.stage = stage, .bucket_bytes = 1024});
      must(save_checkpoint(trainee.engine, trainee.adam, directory.path(), 1, "{}"));
    });
    const std::string path = directory.path() + "/step-00000001";
    EXPECT_TRUE(verify_checkpoint(path).ok());
    for (const char* name : {"in.w", "h.1.w"}) {
      const auto values = must(read_checkpoint_parameter(path, name));
      for (size_t i = 0; i < values.size(); ++i) ASSERT_EQ(values[i], 0.3f * noise(name, i, 0)) << name << i;
    }
  }
}

// A manifest that is sound by itself, but does not describe its files.
TEST(Checkpoint, NoticesRunsThatTheFilesDoNotHave) {
  Directory directory;
  run_ranks(2, RankMode::kThreads, [&](RankContext& rank) {
    Communicator comm = rank.communicator("log=error");
    Trainee trainee(comm, {}, {.bucket_bytes = 1024});
    must(save_checkpoint(trainee.engine, trainee.adam, directory.path(), 1, "{}"));
  });
  const std::string path = directory.path() + "/step-00000001", manifest_path = path + "/manifest.json";
  const zero::Manifest good = must(zero::parse_manifest(must(zero::read_text(manifest_path, 1 << 20)), manifest_path));
  ASSERT_GT(good.tensors.at("h.0.w").pieces.size(), 4u);
  ASSERT_GT(good.tensors.at("h.0.w").pieces[2].begin, 0u);
  const auto refused = [&](const std::function<void(zero::ManifestPiece&)>& change) {
    zero::Manifest bad = good;
    change(bad.tensors.at("h.0.w").pieces[2]);
    must(zero::replace_text(manifest_path, must(zero::manifest_to_text(bad))));
    const Status status = verify_checkpoint(path);
    EXPECT_EQ(status.code(), Code::kDataLoss);
    EXPECT_NE(status.message().find("h.0.w"), std::string_view::npos) << status.to_string();
  };
  refused([](zero::ManifestPiece& piece) { ++piece.begin; });
  refused([](zero::ManifestPiece& piece) { piece.begin = SIZE_MAX; });
  refused([](zero::ManifestPiece& piece) { piece.file = "shard-0001-of-0002.safetensors"; });
  refused([](zero::ManifestPiece& piece) { ++piece.checksum; });
  must(zero::replace_text(manifest_path, must(zero::manifest_to_text(good))));
  EXPECT_TRUE(verify_checkpoint(path).ok());
}

// One rank, saved in `dir` at `step`.
void save_one(const std::string& dir, uint64_t step, int keep = 0) {
  run_ranks(1, RankMode::kThreads, [&](RankContext& rank) {
    Communicator comm = rank.communicator("log=error");
    Trainee trainee(comm, {}, {});
    must(save_checkpoint(trainee.engine, trainee.adam, dir, step, "{}", keep));
  });
}

std::vector<std::string> names_in(const std::string& dir) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(dir)) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

TEST(Checkpoint, KeepsTheNewestComplete) {
  Directory directory;
  EXPECT_EQ(must(newest_checkpoint(directory.path())), "");
  for (const uint64_t step : {10u, 20u, 30u}) save_one(directory.path(), step);
  fs::create_directory(directory.path() + "/step-00000035");  // interrupted
  fs::create_directory(directory.path() + "/step-00000099");  // being written by somebody
  fs::create_directory(directory.path() + "/notes");
  EXPECT_EQ(must(newest_checkpoint(directory.path())), directory.path() + "/step-00000030");
  save_one(directory.path(), 40, 2);
  EXPECT_EQ(names_in(directory.path()),
            (std::vector<std::string>{"notes", "step-00000030", "step-00000040", "step-00000099"}));
  save_one(directory.path(), 5, 1);  // what has just been written stays
  EXPECT_EQ(names_in(directory.path()),
            (std::vector<std::string>{"notes", "step-00000005", "step-00000040", "step-00000099"}));
}

TEST(Checkpoint, SavesAStepAgain) {
  Directory directory;
  for (int round = 0; round < 3; ++round) save_one(directory.path(), 7);
  const std::string path = directory.path() + "/step-00000007";
  EXPECT_EQ(names_in(path), (std::vector<std::string>{"manifest.json", "shard-0000-of-0001-2.safetensors"}));
  EXPECT_TRUE(verify_checkpoint(path).ok());
}

TEST(Checkpoint, IsInspectedWithoutAnEngine) {
  Directory directory;
  run_ranks(3, RankMode::kThreads, [&](RankContext& rank) {
    Communicator comm = rank.communicator("log=error");
    Trainee trainee(comm, kMixed, {.stage = 3});
    must(save_checkpoint(trainee.engine, trainee.adam, directory.path(), 12, R"({"a":1})"));
  });
  const std::string path = directory.path() + "/step-00000012";
  const CheckpointInfo info = must(inspect_checkpoint(path));
  EXPECT_EQ(info.step, 12u);
  EXPECT_EQ(info.world_size, 3);
  EXPECT_EQ(info.files.size(), 3u);
  EXPECT_EQ(info.trainer_state, R"({"a":1})");
  size_t on_disk = 0;
  for (const std::string& file : info.files) on_disk += fs::file_size(path + "/" + file);
  EXPECT_EQ(info.total_bytes, on_disk);
  std::map<std::string, std::vector<size_t>> shapes;
  for (const CheckpointTensor& tensor : info.tensors) shapes[tensor.name] = tensor.shape;
  EXPECT_EQ(shapes["h.1.w/m"], (std::vector<size_t>{40, 40}));
  EXPECT_TRUE(shapes.contains("h.0.w"));
  EXPECT_FALSE(shapes.contains("h.0.w/m"));  // frozen
  EXPECT_FALSE(shapes.contains("out.w"));    // tied
  const auto values = must(read_checkpoint_parameter(path, "in.w"));
  ASSERT_EQ(values.size(), 800u);
  for (size_t i = 0; i < values.size(); ++i) ASSERT_EQ(values[i], 0.3f * noise("in.w", i, 0));
  EXPECT_EQ(must(read_checkpoint_parameter(path, "out.w")), values);
  EXPECT_EQ(must(read_checkpoint_parameter(path, "h.0.w"))[3],
            bf16_to_float(float_to_bf16(0.3f * noise("h.0.w", 3, 0))));
  EXPECT_EQ(read_checkpoint_parameter(path, "nothing").status().code(), Code::kInvalidArgument);
  EXPECT_EQ(inspect_checkpoint(directory.path()).status().code(), Code::kUnavailable);
}

TEST(Checkpoint, RefusesAnotherModel) {
  Directory directory;
  save_one(directory.path(), 1);
  const std::string path = directory.path() + "/step-00000001";
  const std::map<std::string, ModelShape> others = {
      {"in.w has shape [40, 20] in the checkpoint, [41, 20] in the model", {.width = 41}},
      {"has no h.2.", {.blocks = 3}},
      {"the model has no h.1.", {.blocks = 1}},
      {"has no out.w", {.tied = false}}};
  for (const auto& other : others) {
    const auto& why = other.first;
    const auto& shape = other.second;
    run_ranks(2, RankMode::kThreads, [&](RankContext& rank) {
      Communicator comm = rank.communicator("log=error");
      Trainee trainee(comm, shape, {});
      const auto before = all_parameters(trainee.engine);
      const Status status = load_checkpoint(trainee.engine, trainee.adam, path).status();
      EXPECT_EQ(status.code(), Code::kInvalidArgument);
      EXPECT_NE(status.message().find(why), std::string_view::npos) << status.to_string();
      EXPECT_TRUE(all_parameters(trainee.engine) == before);
    });
  }
}

void flip_byte(const std::string& path, size_t at) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(static_cast<std::streamoff>(at));
  const char byte = static_cast<char>(file.get());
  file.seekp(static_cast<std::streamoff>(at));
  file.put(static_cast<char>(byte ^ 0x10));
}

// Whatever is damaged: kDataLoss that names the file, on all ranks, and the engine is as it was.
TEST(Checkpoint, NoticesDamageBeforeItOverwrites) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  Directory directory;
  run_ranks(2, RankMode::kThreads, [&](RankContext& rank) {
    Communicator comm = rank.communicator("log=error");
    Trainee trainee(comm, {}, {.bucket_bytes = 2048});  // matrices have several runs in a file
    must(save_checkpoint(trainee.engine, trainee.adam, directory.path(), 1, "{}"));
  });
  const std::string good = directory.path() + "/step-00000001", bad = directory.path() + "/bad";
  const std::string shard = bad + "/shard-0001-of-0002.safetensors", manifest = bad + "/manifest.json";
  const size_t size = fs::file_size(good + "/shard-0001-of-0002.safetensors");
  const std::vector<std::pair<std::string, std::function<void()>>> damages = {
      {"shard-0001", [&] { flip_byte(shard, size - 1); }},
      {"shard-0001", [&] { flip_byte(shard, size - 1 - random() % (size / 2)); }},
      {"shard-0001", [&] { flip_byte(shard, random() % 600); }},
      {"shard-0001", [&] { fs::resize_file(shard, size - 1); }},
      {"shard-0001", [&] { fs::resize_file(shard, size + 1); }},
      {"shard-0001", [&] { fs::resize_file(shard, random() % size); }},
      {"shard-0001", [&] { fs::resize_file(shard, 0); }},
      {"shard-0001", [&] { fs::remove(shard); }},
      {"shard-0001", [&] { fs::remove(shard), fs::create_directory(shard); }},
      {"shard-0001",
       [&] { fs::copy_file(bad + "/shard-0000-of-0002.safetensors", shard, fs::copy_options::overwrite_existing); }},
      {"manifest.json", [&] { fs::resize_file(manifest, fs::file_size(manifest) / 2); }},
      {"manifest.json", [&] { std::ofstream(manifest) << "{}"; }},
      {"manifest.json", [&] { std::ofstream(manifest, std::ios::app) << "x"; }},
  };
  run_ranks(2, RankMode::kThreads, [&](RankContext& rank) {
    Communicator comm = rank.communicator("log=error");
    Trainee trainee(comm, {}, {});
    const auto before = all_parameters(trainee.engine);
    for (size_t i = 0; i < damages.size(); ++i) {
      const auto& [name, damage] = damages[i];
      if (rank.rank() == 0) {
        fs::remove_all(bad);
        fs::copy(good, bad);
        damage();
        const Status verified = verify_checkpoint(bad);
        EXPECT_EQ(verified.code(), Code::kDataLoss) << "damage " << i;
        EXPECT_NE(verified.message().find(name), std::string_view::npos) << verified.to_string();
      }
      must(must(comm.barrier(kCaller)).synchronize(Deadline::max()));
      const Status status = load_checkpoint(trainee.engine, trainee.adam, bad).status();
      EXPECT_EQ(status.code(), Code::kDataLoss) << "damage " << i << ": " << status.to_string();
      EXPECT_NE(status.message().find(name), std::string_view::npos) << status.to_string();
      EXPECT_TRUE(all_parameters(trainee.engine) == before) << "damage " << i;
    }
    must(load_checkpoint(trainee.engine, trainee.adam, good));  // all is well with the rest
  });
}

// --- failures and kills at chosen steps ---
std::atomic<int> steps_left;      // before the one that fails
std::atomic<const char*> victim;  // only paths that contain it count
int fail_at_step(const char*, const char* path) {
  if (std::string_view(path).find(victim.load()) == std::string_view::npos) return 0;
  return steps_left-- == 0 ? ENOSPC : 0;
}
int die_at_step(const char*, const char*) {
  if (steps_left-- == 0) std::raise(SIGKILL);
  return 0;
}

// A full disk on one rank is the same error on all; nothing new counts and nothing old is lost.
TEST(Checkpoint, AFailureOnOneRankIsTheSameOnAll) {
  for (const char* where : {"shard-0000", "shard-0002", "manifest", "step-00000002"}) {
    Directory directory;
    bool succeeded = false;
    for (int step = 0; !succeeded; ++step) {
      ASSERT_LT(step, 100);
      run_ranks(3, RankMode::kThreads, [&](RankContext& rank) {
        Communicator comm = rank.communicator("log=error");
        Trainee trainee(comm, {}, {});
        if (step == 0) must(save_checkpoint(trainee.engine, trainee.adam, directory.path(), 1, "{}"));
        must(must(comm.barrier(kCaller)).synchronize(Deadline::max()));
        if (rank.rank() == 0) {
          victim = where;
          steps_left = step;
          zero::set_file_hook(fail_at_step);
        }
        must(must(comm.barrier(kCaller)).synchronize(Deadline::max()));
        const auto saved = save_checkpoint(trainee.engine, trainee.adam, directory.path(), 2, "{}");
        must(must(comm.barrier(kCaller)).synchronize(Deadline::max()));
        rank.publish(saved.status().to_string());
        if (rank.rank() == 0) {
          zero::set_file_hook(nullptr);
          succeeded = saved.ok();
          if (!saved.ok()) {
            EXPECT_EQ(saved.status().code(), Code::kUnavailable);
            EXPECT_NE(saved.status().message().find("step-00000002"), std::string_view::npos)
                << saved.status().to_string();
            EXPECT_TRUE(verify_checkpoint(must(newest_checkpoint(directory.path()))).ok());
          }
        }
      });
    }
    EXPECT_EQ(must(newest_checkpoint(directory.path())), directory.path() + "/step-00000002");
  }
}

// kill -9 at every step that touches the file system, while saving a new checkpoint, the same step again, and pruning.
TEST(Checkpoint, AKillAtAnyPointLeavesALoadableOne) {
  Directory directory;
  save_one(directory.path(), 1);
  save_one(directory.path(), 2);
  bool survived = false;
  for (int step = 0; !survived; ++step) {
    ASSERT_LT(step, 300);
    const pid_t child = fork();
    if (child == 0) {
      steps_left = step;
      zero::set_file_hook(die_at_step);
      auto store = must(open_store("local://alone"));
      Communicator comm = must(Communicator::create(*store, {}, must(Options::parse("log=error"))));
      Trainee trainee(comm, {}, {});
      must(save_checkpoint(trainee.engine, trainee.adam, directory.path(), 2, "{}"));
      must(save_checkpoint(trainee.engine, trainee.adam, directory.path(), 3, "{}", 1));
      _exit(0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    survived = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    ASSERT_TRUE(survived || (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL))
        << "step " << step << " status " << status;
    const std::string newest = must(newest_checkpoint(directory.path()));
    ASSERT_NE(newest, "") << "step " << step;
    const Status verified = verify_checkpoint(newest);
    ASSERT_TRUE(verified.ok()) << "step " << step << ": " << verified.to_string();
  }
  EXPECT_EQ(names_in(directory.path()), (std::vector<std::string>{"step-00000003"}));
}

TEST(Checkpoint, ArgumentsAreCheckedOnAllRanks) {
  Directory directory;
  run_ranks(2, RankMode::kThreads, [&](RankContext& rank) {
    Communicator comm = rank.communicator("log=error");
    Trainee trainee(comm, {}, {});
    const auto save = [&](const std::string& dir, uint64_t step, const std::string& state) {
      return save_checkpoint(trainee.engine, trainee.adam, dir, step, state).status();
    };
    EXPECT_EQ(save(directory.path(), 1, rank.rank() == 1 ? "[1]" : "{}").code(), Code::kInvalidArgument);
    EXPECT_EQ(save("", 1, "{}").code(), Code::kInvalidArgument);
    EXPECT_EQ(save(directory.path(), static_cast<uint64_t>(rank.rank()), "{}").code(), Code::kFailedPrecondition);
    EXPECT_EQ(save("/proc/none/here", 1, "{}").code(), Code::kUnavailable);
    EXPECT_EQ(save("/dev/null", 1, "{}").code(), Code::kSystem);
    EXPECT_FALSE(fs::exists(directory.path()));
    EXPECT_EQ(load_checkpoint(trainee.engine, trainee.adam, directory.path() + "/step-00000001").status().code(),
              Code::kUnavailable);
    must(save(directory.path(), 1, ""));
  });
}

}  // namespace
}  // namespace shardcomm::testing
