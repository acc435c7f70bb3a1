// shardcomm train: the reference trainer's command line.
#include <fmt/format.h>

#include <fstream>
#include <memory>

#include "shardcomm/store.h"
#include "tools/command.h"
#include "tools/launcher.h"
#include "tools/trainer/loop.h"
#include "tools/trainer/tokenizer.h"

namespace shardcomm::tools {
namespace {

using trainer::TrainOptions;

struct Request {
  TrainOptions train;
  int ranks = 0;  // 0: those of the environment, or this process alone
  uint64_t warmup = 0;
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
constexpr uint64_t kMost = uint64_t{1} << 40;
constexpr uint64_t kMostWide = 1 << 24;  // of the model's dimensions

void add_model_flags(Flags& flags, Request& request) {
  trainer::ModelConfig& model = request.train.model;
  flags.group("Model");
  flags.word("--model", model.model, "Architecture", {"gpt2"});
  flags.count("--layers", model.layers, "Transformer blocks", 1, kMostWide);
  flags.count("--heads", model.heads, "Attention heads of a block", 1, kMostWide);
  flags.count("--channels", model.channels, "Width of the residual stream", 1, kMostWide);
  flags.count("--seq", model.seq, "Tokens of a sequence", 1, kMostWide);
  flags.count("--vocab", model.vocab, "Size of the vocabulary", 1, kMostWide);
  flags.word("--recompute", request.recompute, "Activations to compute again in backward", {"none", "block"});
}

void add_data_flags(Flags& flags, Request& request) {
  trainer::DataOptions& data = request.train.data;
  flags.group("Data");
  flags.texts("--data", data.files, "Training text (default: the project's own sources)", "FILE");
  flags.texts("--val", data.validation_files, "Validation text (default: the last tenth of the data)", "FILE");
  flags.word("--tokenizer", request.tokenizer, "How text becomes tokens", {"byte"});
  flags.count("--seed", request.train.seed, "Of the initial weights and the data order", 0, UINT64_MAX);
}

void add_sharding_flags(Flags& flags, Request& request) {
  ZeroOptions& zero = request.train.zero;
  flags.group("Sharding");
  flags
      .count("--ranks", request.ranks, "Start this many ranks here (default: those of the environment, or one)", 1,
             kMostRanks)
      .without_default();
  flags.count("--stage", zero.stage, "ZeRO: shard nothing (0), optimizer (1), and gradients (2), and parameters (3)", 0,
              3);
  flags.count("--prefetch", zero.prefetch_units, "Units gathered ahead of the computation", 0, 1024);
  flags.size("--bucket-bytes", zero.bucket_bytes, "Parameters moved by one collective at most; 0: no limit", 0);
  flags.toggle("--mosaic", zero.mosaic, "Stage 3: read parameters in all ranks' memory itself, without gathers");
  flags.word("--dtype", request.dtype, "Parameters, on the wire and in memory", {"f32", "bf16"});
  flags.word("--reduce-dtype", request.reduce_dtype, "Gradients on the wire; sums are f32", {"f32", "bf16"});
  flags.transports(request.transports);
}

// Returns the flag whose default follows from another.
Flag add_training_flags(Flags& flags, Request& request) {
  TrainOptions& train = request.train;
  train.learning_rate.steps = kDefaultSteps;
  train.learning_rate.peak = kDefaultLearningRate;
  flags.group("Training");
  flags.count("--steps", train.learning_rate.steps, "Optimizer steps of the whole run", 1, kMost);
  flags.count("--batch", train.batch, "Sequences per rank and micro-batch", 1, kMost);
  flags.count("--accumulate", train.accumulate, "Micro-batches per step", 1, kMost);
  flags.real("--lr", train.learning_rate.peak, "Learning rate after the warm-up", 0, 1e3);
  const Flag warmup =
      flags.count("--warmup", request.warmup, "Steps of linear warm-up (default: a tenth of --steps)", 0, kMost)
          .without_default();
  flags.word("--schedule", request.schedule, "Learning rate after the warm-up",
             {"cosine", "linear", "constant", "wsd"});
  flags.real("--min-lr-ratio", train.learning_rate.min_ratio, "Learning rate at the end, as a part of --lr", 0, 1);
  flags.real("--weight-decay", train.adam.weight_decay, "Of matrices; vectors do not decay", 0, 1e3);
  flags.real("--beta1", train.adam.beta1, "AdamW", 0, 0.999999);
  flags.real("--beta2", train.adam.beta2, "AdamW", 0, 0.999999);
  flags.real("--eps", train.adam.eps, "AdamW", 0, 1);
  flags.real("--clip", train.clip, "Largest gradient norm; 0: no clipping", 0, 1e9);
  return warmup;
}

void add_output_flags(Flags& flags, Request& request) {
  TrainOptions& train = request.train;
  flags.group("Output");
  flags.count("--eval-every", train.eval_every, "Steps between evaluations; 0: at the end only", 0, kMost);
  flags.text("--save", train.save_dir, "Checkpoints go here", "DIR");
  flags.count("--save-every", train.save_every, "Steps between checkpoints; 0: at the end only", 0, kMost);
  flags.count("--keep", train.keep, "Checkpoints that stay; 0: all", 0, 1 << 20);
  flags.text("--resume", train.resume, "Go on from a step directory, or from the newest in --save ('auto')",
             "auto|PATH");
  flags.text("--log", train.log, "One JSON object a step", "F.jsonl");
  flags.text("--trace", train.trace, "The newest 50 steps in Chrome trace format, for Perfetto", "F.json");
  flags.text("--timeline", train.timeline, "A picture of the last step", "F.svg");
}

// What the parser cannot see: flags that do not go together, and what follows from others.
void resolve(Request& request, bool warmup_given) {
  TrainOptions& train = request.train;
  train.zero.gradient_dtype = *parse_dtype(request.reduce_dtype);
  train.dtype = *parse_dtype(request.dtype);
  train.recompute_blocks = request.recompute == "block";
  train.learning_rate.decay = trainer::parse_decay(request.schedule).value();
  train.learning_rate.warmup = warmup_given ? request.warmup : train.learning_rate.steps / kWarmupPart;
  if (train.resume == "auto" && train.save_dir.empty()) throw UsageError("train: --resume auto needs --save DIR");
  if (train.save_every != 0 && train.save_dir.empty()) throw UsageError("train: --save-every needs --save DIR");
  const size_t tokens = trainer::ByteTokenizer().size();
  if (train.model.vocab < tokens) {
    throw UsageError(
        fmt::format("train: --vocab {} is less than the {} tokens of the byte tokenizer", train.model.vocab, tokens));
  }
  if (const Status valid = validate(train.model); !valid.ok())
    throw UsageError("train: " + std::string(valid.message()));
  if (const Status valid = validate(train.learning_rate); !valid.ok())
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
Status train_here(const Request& request) {
  SHARDCOMM_TRY_ASSIGN(const Options options,
                       Options::parse(request.transports.empty() ? "" : "transports=" + request.transports));
  const Result<LaunchedRank> launched = LaunchedRank::from_env();
  if (!launched.ok() && launched.status().code() != Code::kUnavailable) return launched.status();
  const LaunchedRank place = launched.ok() ? launched.value() : LaunchedRank{};
  SHARDCOMM_TRY_ASSIGN(const auto store, open_store(launched.ok() ? "env://" : "local://train"));
  SHARDCOMM_TRY_ASSIGN(Communicator comm, Communicator::create(*store, {place.rank, place.world_size}, options));
  return trainer::train(comm, request.train);
}

}  // namespace

Subcommand add_train(CLI::App& app) {
  Flags flags = add_subcommand(app, "train", "Train the reference transformer with sharded parameters.");
  auto request = std::make_shared<Request>();
  add_model_flags(flags, *request);
  add_data_flags(flags, *request);
  add_sharding_flags(flags, *request);
  const Flag warmup = add_training_flags(flags, *request);
  add_output_flags(flags, *request);
  flags.footer(
      "The log has, for each step: step, tokens, loss, val_loss (when evaluated), lr, grad_norm, dt_ms, tok_s, mfu,\n"
      "comm_ms, exposed_comm_ms, live_bytes, peak_bytes and bytes_sent; what is per rank is rank 0's.");
  return {flags.app(), [request, warmup](const Invocation& invocation) -> Result<int> {
            resolve(*request, warmup.given());
            SHARDCOMM_TRY(find_data(request->train));
            if (request->ranks > 0) return launch_self(request->ranks, invocation.arguments);
            SHARDCOMM_TRY(train_here(*request));
            return 0;
          }};
}

}  // namespace shardcomm::tools
