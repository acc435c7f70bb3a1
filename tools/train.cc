// shardcomm train: the reference trainer's command line.
#include <fmt/format.h>

#include <fstream>
#include <memory>

#include "shardcomm/store.h"
#include "tools/command.h"
#include "tools/launcher.h"
#include "tools/trainer/loop.h"
#include "tools/trainer/tokenizer.h"
#include "tools/values.h"

namespace shardcomm::tools {
namespace {

using trainer::TrainOptions;

struct Flags {
  TrainOptions train;
  int ranks = 0;  // 0: those of the environment, or this process alone
  uint64_t warmup = 0;
  CLI::Option* warmup_option = nullptr;
  std::string schedule = "cosine";
  std::string dtype = "f32";
  std::string reduce_dtype = "f32";
  std::string recompute = "none";
  std::string tokenizer = "byte";
  std::string transports;
};

constexpr uint64_t kDefaultSteps = 300;
constexpr double kDefaultLearningRate = 3e-3;
constexpr uint64_t kWarmupPart = 10;  // of the steps, unless --warmup says otherwise
constexpr int64_t kMost = int64_t{1} << 40;

void add_model_flags(CLI::App& app, Flags& flags) {
  trainer::ModelConfig& model = flags.train.model;
  app.add_option("--model", model.model, "Architecture")
      ->check(one_of({"gpt2"}))
      ->capture_default_str()
      ->group("Model");
  const auto size = [&](const char* name, size_t& value, const char* help) {
    app.add_option(name, value, help)->check(whole_number(1, 1 << 24))->capture_default_str()->group("Model");
  };
  size("--layers", model.layers, "Transformer blocks");
  size("--heads", model.heads, "Attention heads of a block");
  size("--channels", model.channels, "Width of the residual stream");
  size("--seq", model.seq, "Tokens of a sequence");
  size("--vocab", model.vocab, "Size of the vocabulary");
  app.add_option("--recompute", flags.recompute, "Activations to compute again in backward")
      ->check(one_of({"none", "block"}))
      ->capture_default_str()
      ->group("Model");
}

void add_data_flags(CLI::App& app, Flags& flags) {
  trainer::DataOptions& data = flags.train.data;
  app.add_option("--data", data.files, "Training text; default: the project's own sources")
      ->type_name("FILE...")
      ->group("Data");
  app.add_option("--val", data.validation_files, "Validation text; default: the last tenth of the data")
      ->type_name("FILE...")
      ->group("Data");
  app.add_option("--tokenizer", flags.tokenizer, "How text becomes tokens")
      ->check(one_of({"byte"}))
      ->capture_default_str()
      ->group("Data");
  app.add_option("--seed", flags.train.seed, "Of the initial weights and the data order")
      ->capture_default_str()
      ->group("Data");
}

void add_sharding_flags(CLI::App& app, Flags& flags) {
  ZeroOptions& zero = flags.train.zero;
  app.add_option("--ranks", flags.ranks, "Start this many ranks here; default: the ranks of the environment, or one")
      ->check(whole_number(1, 4096))
      ->group("Sharding");
  app.add_option("--stage", zero.stage,
                 "ZeRO stage: what is sharded besides nothing (0), optimizer state (1), gradients (2), parameters (3)")
      ->check(whole_number(0, 3))
      ->capture_default_str()
      ->group("Sharding");
  app.add_option("--prefetch", zero.prefetch_units, "Units gathered ahead of the computation")
      ->check(whole_number(0, 1024))
      ->capture_default_str()
      ->group("Sharding");
  app.add_option("--bucket-bytes", zero.bucket_bytes, "Target size of a bucket; 0: no limit")
      ->transform(byte_size(0))
      ->default_str("64M")
      ->group("Sharding");
  app.add_option("--dtype", flags.dtype, "Parameters, on the wire and in memory")
      ->check(one_of({"f32", "bf16"}))
      ->capture_default_str()
      ->group("Sharding");
  app.add_option("--reduce-dtype", flags.reduce_dtype, "Gradients on the wire; sums are f32")
      ->check(one_of({"f32", "bf16"}))
      ->capture_default_str()
      ->group("Sharding");
  app.add_option("--transports", flags.transports, "Transports to try, in order; default: as the environment says")
      ->group("Sharding");
}

void add_training_flags(CLI::App& app, Flags& flags) {
  TrainOptions& train = flags.train;
  train.schedule.steps = kDefaultSteps;
  train.schedule.peak = kDefaultLearningRate;
  const auto number = [&](const char* name, auto& value, int64_t least, const char* help) {
    return app.add_option(name, value, help)
        ->check(whole_number(least, kMost))
        ->capture_default_str()
        ->group("Training");
  };
  const auto real = [&](const char* name, auto& value, double most, const char* help) {
    app.add_option(name, value, help)->check(CLI::Range(0.0, most))->capture_default_str()->group("Training");
  };
  number("--steps", train.schedule.steps, 1, "Optimizer steps of the whole run");
  number("--batch", train.batch, 1, "Sequences per rank and micro-batch");
  number("--accumulate", train.accumulate, 1, "Micro-batches per step");
  real("--lr", train.schedule.peak, 1e3, "Learning rate after the warm-up");
  flags.warmup_option = number("--warmup", flags.warmup, 0, "Steps of linear warm-up; default: a tenth of --steps");
  app.add_option("--schedule", flags.schedule, "Learning rate after the warm-up")
      ->check(one_of({"cosine", "linear", "constant", "wsd"}))
      ->capture_default_str()
      ->group("Training");
  real("--min-lr-ratio", train.schedule.min_ratio, 1, "Learning rate at the end, as a part of --lr");
  real("--weight-decay", train.adam.weight_decay, 1e3, "Of matrices; vectors do not decay");
  real("--beta1", train.adam.beta1, 0.999999, "AdamW");
  real("--beta2", train.adam.beta2, 0.999999, "AdamW");
  real("--eps", train.adam.eps, 1, "AdamW");
  real("--clip", train.clip, 1e9, "Largest gradient norm; 0: no clipping");
}

void add_output_flags(CLI::App& app, Flags& flags) {
  TrainOptions& train = flags.train;
  const auto file = [&](const char* name, std::string& value, const char* help, const char* type) {
    app.add_option(name, value, help)->type_name(type)->group("Output");
  };
  const auto steps = [&](const char* name, uint64_t& value, const char* help) {
    app.add_option(name, value, help)->check(whole_number(0, kMost))->capture_default_str()->group("Output");
  };
  steps("--eval-every", train.eval_every, "Steps between evaluations; 0: at the end only");
  file("--save", train.save_dir, "Checkpoints go here", "DIR");
  steps("--save-every", train.save_every, "Steps between checkpoints; 0: at the end only");
  app.add_option("--keep", train.keep, "Checkpoints that stay; 0: all")
      ->check(whole_number(0, 1 << 20))
      ->capture_default_str()
      ->group("Output");
  file("--resume", train.resume, "Go on from a step directory, or from the newest in --save ('auto')", "auto|PATH");
  file("--log", train.log, "One JSON object a step", "F.jsonl");
  file("--trace", train.trace, "The newest 50 steps in Chrome trace format, for Perfetto", "F.json");
  file("--timeline", train.timeline, "A picture of the last step", "F.svg");
}

// What the parser cannot see: flags that do not go together, and what follows from others.
void resolve(Flags& flags) {
  TrainOptions& train = flags.train;
  train.zero.gradient_dtype = *parse_dtype(flags.reduce_dtype);
  train.dtype = *parse_dtype(flags.dtype);
  train.recompute_blocks = flags.recompute == "block";
  train.schedule.decay = trainer::parse_decay(flags.schedule).value();
  train.schedule.warmup = flags.warmup_option->count() > 0 ? flags.warmup : train.schedule.steps / kWarmupPart;
  if (train.resume == "auto" && train.save_dir.empty()) throw UsageError("train: --resume auto needs --save DIR");
  if (train.save_every != 0 && train.save_dir.empty()) throw UsageError("train: --save-every needs --save DIR");
  const size_t tokens = trainer::ByteTokenizer().size();
  if (train.model.vocab < tokens) {
    throw UsageError(
        fmt::format("train: --vocab {} is less than the {} tokens of the byte tokenizer", train.model.vocab, tokens));
  }
  if (const Status valid = validate(train.model); !valid.ok())
    throw UsageError("train: " + std::string(valid.message()));
  if (const Status valid = validate(train.schedule); !valid.ok())
    throw UsageError("train: " + std::string(valid.message()));
}

Status find_data(TrainOptions& train) {
  if (train.data.files.empty()) {
    Result<std::vector<std::string>> own = trainer::list_text_files(SHARDCOMM_SOURCE_DIR);
    if (!own.ok() || own->empty())
      return Status(Code::kUnavailable, "the project's own sources, the default text, are not here: give --data FILE");
    train.data.files = std::move(own).value();
  }
  for (const auto* files : {&train.data.files, &train.data.validation_files}) {
    for (const std::string& file : *files) {
      if (!std::ifstream(file)) return Status::native(Origin::kErrno, errno, fmt::format("open '{}'", file));
    }
  }
  return {};
}

// This process's rank: one of a launcher's, or the only one.
Status train_here(const Flags& flags) {
  SHARDCOMM_TRY_ASSIGN(const Options options,
                       Options::parse(flags.transports.empty() ? "" : "transports=" + flags.transports));
  const Result<LaunchedRank> launched = LaunchedRank::from_env();
  if (!launched.ok() && launched.status().code() != Code::kUnavailable) return launched.status();
  const LaunchedRank place = launched.ok() ? launched.value() : LaunchedRank{};
  SHARDCOMM_TRY_ASSIGN(const auto store, open_store(launched.ok() ? "env://" : "local://train"));
  SHARDCOMM_TRY_ASSIGN(Communicator comm, Communicator::create(*store, {place.rank, place.world_size}, options));
  return trainer::train(comm, flags.train);
}

}  // namespace

Subcommand add_train(CLI::App& app) {
  CLI::App* train = app.add_subcommand("train", "Train the reference transformer with sharded parameters.");
  auto flags = std::make_shared<Flags>();
  add_model_flags(*train, *flags);
  add_data_flags(*train, *flags);
  add_sharding_flags(*train, *flags);
  add_training_flags(*train, *flags);
  add_output_flags(*train, *flags);
  train->footer(
      "The log has, for each step: step, tokens, loss, val_loss (when evaluated), lr, grad_norm, dt_ms, tok_s, mfu, "
      "comm_ms,\n"
      "exposed_comm_ms, live_bytes, peak_bytes and bytes_sent; what is per rank is rank 0's.");
  return {train, [flags](const Invocation& invocation) -> Result<int> {
            resolve(*flags);
            SHARDCOMM_TRY(find_data(flags->train));
            if (flags->ranks > 0) return launch_self(flags->ranks, invocation.arguments);
            SHARDCOMM_TRY(train_here(*flags));
            return 0;
          }};
}

}  // namespace shardcomm::tools
