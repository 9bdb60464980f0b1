#pragma once
// Flags that people type from other programs and that are not names of a field there, so that the
// schema does not list them.

#include <string_view>

namespace lockstep::config {

// Flags of other programs that stand for a field of several sections, by the field's name, or for
// one field, by its path; perhaps with the value that they mean.
struct FlagOfOthers {
  std::string_view flag, name, value = "", but = "";
};

inline constexpr FlagOfOthers kFlagsOfOthers[] = {
    {"wd", "weight_decay"},
    {"l2", "weight_decay"},
    {"opt", "optimizer"},
    {"optimizer_name", "optimizer"},
    {"optimizer_type", "optimizer"},
    {"adam_beta1", "beta1"},
    {"adam_beta2", "beta2"},
    {"adam_epsilon", "epsilon"},
    {"adam_eps", "epsilon"},
    {"clip", "clip_norm"},
    {"clip_grad", "clip_norm"},
    {"gradient_clipping", "clip_norm"},
    {"b", "global_batch"},
    {"mbs", "global_batch"},
    {"global_batch_size", "global_batch"},
    {"total_batch_size", "global_batch"},
    {"mini_batch_size", "global_batch"},
    {"j", "decode_threads"},
    {"gas", "lanes"},
    {"accum_steps", "gradient_accumulation_steps"},
    {"accum_iter", "gradient_accumulation_steps"},
    {"warmup", "warmup_steps"},
    {"warmup_epochs", "warmup_steps", "", "It is counted in steps."},
    {"warmup_proportion", "warmup_ratio"},
    {"peak_lr", "schedule_lr"},
    {"initial_lr", "schedule_lr"},
    {"lr_gamma", "schedule_gamma"},
    {"lr_step_size", "milestones", "", "It lists the steps at which the rate falls."},
    {"step_size", "milestones", "", "It lists the steps at which the rate falls."},
    {"lr_steps", "milestones", "", "It lists the steps at which the rate falls."},
    {"mixup_alpha", "mixup"},
    {"fp32", "execution_precision", "FP32"},
    {"float16", "execution_precision", "FP16"},
    {"bfloat16", "execution_precision", "BF16"},
    {"half", "execution_precision", "FP16"},
    {"use_amp", "amp"},
    {"compression", "comm_wire_dtype"},
    {"fp16_allreduce", "comm_wire_dtype", "FP16"},
    {"grad_dtype", "comm_wire_dtype"},
    {"recompute", "activation_checkpointing"},
    {"context_length", "context"},
    {"max_seq_len", "context"},
    {"seq_length", "context"},
    {"sequence_len", "context"},
    {"n_ctx", "context"},
    {"num_classes", "classes"},
    {"nb_classes", "classes"},
    {"n_classes", "classes"},
    {"val_every", "eval_every"},
    {"val_interval", "eval_every"},
    {"val_freq", "eval_every"},
    {"val_loss_every", "eval_every"},
    {"valid_every", "eval_every"},
    {"eval_strategy", "eval_every", "", "It is counted in steps."},
    {"evaluation_strategy", "eval_every", "", "It is counted in steps."},
    {"save_strategy", "checkpoint_every", "", "It is counted in steps."},
    {"checkpoint_freq", "checkpoint_every"},
    {"ckpt_every", "checkpoint_every"},
    {"keep_checkpoints", "keep_last"},
    {"project", "name"},
    {"experiment", "name"},
    {"manualseed", "seed"},
    {"weights", "init_from"},
    {"load_weights", "init_from"},
    {"init_checkpoint", "init_from"},
    {"finetune_from", "init_from"},
    {"model_ema", "ema"},
    {"model_ema_decay", "ema_decay"},
    {"img_size", "data_image_size"},
    {"image_size", "data_image_size"},
    {"imgsz", "data_image_size"},
    {"crop_size", "data_image_size"},
    {"sync_bn", "sync_batch_norm"},
    {"sync_batchnorm", "sync_batch_norm"},
    {"train_file", "train"},
    {"train_files", "train"},
    {"train_data", "train"},
    {"training_data", "train"},
    {"train_path", "train"},
    {"train_dataset", "train"},
    {"eval_file", "eval"},
    {"eval_data", "eval"},
    {"eval_dataset", "eval"},
    {"val_file", "eval"},
    {"val_data", "eval"},
    {"valid_file", "eval"},
    {"validation_file", "eval"},
    {"validation_data", "eval"},
    {"test_file", "eval"},
    {"target_column", "target"},
    {"label_column", "target"},
};

// Names of types in other programs.
struct TypeOfOthers {
  std::string_view other, name;
};

inline constexpr TypeOfOthers kTypesOfOthers[] = {
    {"bfloat16", "bf16"},
    {"bf16_mixed", "bf16"},
    {"float16", "fp16"},
    {"half", "fp16"},
    {"16_mixed", "fp16"},
    {"16", "fp16"},
    {"float32", "fp32"},
    {"float", "fp32"},
    {"32", "fp32"},
    {"32_true", "fp32"},
    {"no", "fp32"},
    {"full", "fp32"},
};

}  // namespace lockstep::config
