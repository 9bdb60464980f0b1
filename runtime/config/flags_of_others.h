#pragma once
// Flags that people type from other programs and that are not names of a field there, so that the
// schema does not list them.

namespace lockstep::config {

// Flags of other programs, separated by blanks, that stand for a field of several sections, by the
// field's name, or for one field, by its path; perhaps with the value that they mean.
struct FlagsOfOthers {
  const char *name, *flags, *value = "", *but = "";
};

inline constexpr FlagsOfOthers kFlagsOfOthers[] = {
    {"weight_decay", "wd l2"},
    {"optimizer", "opt optimizer_name optimizer_type"},
    {"beta1", "adam_beta1"},
    {"beta2", "adam_beta2"},
    {"epsilon", "adam_epsilon adam_eps"},
    {"clip_norm", "clip clip_grad gradient_clipping"},
    {"global_batch", "b mbs global_batch_size total_batch_size mini_batch_size"},
    {"decode_threads", "j"},
    {"lanes", "gas"},
    {"gradient_accumulation_steps", "accum_steps accum_iter"},
    {"warmup_steps", "warmup"},
    {"warmup_steps", "warmup_epochs", "", "It is counted in steps."},
    {"warmup_ratio", "warmup_proportion"},
    {"schedule_lr", "peak_lr initial_lr"},
    {"schedule_gamma", "lr_gamma"},
    {"milestones",
     "lr_step_size step_size lr_steps",
     "",
     "It lists the steps at which the rate falls."},
    {"mixup", "mixup_alpha"},
    {"execution_precision", "fp32", "FP32"},
    {"execution_precision", "float16 half", "FP16"},
    {"execution_precision", "bfloat16", "BF16"},
    {"amp", "use_amp"},
    {"comm_wire_dtype", "compression grad_dtype"},
    {"comm_wire_dtype", "fp16_allreduce", "FP16"},
    {"activation_checkpointing", "recompute"},
    {"context", "context_length max_seq_len seq_length sequence_len n_ctx"},
    {"classes", "num_classes nb_classes n_classes"},
    {"eval_every", "val_every val_interval val_freq val_loss_every valid_every"},
    {"eval_every", "eval_strategy evaluation_strategy", "", "It is counted in steps."},
    {"checkpoint_every", "save_strategy", "", "It is counted in steps."},
    {"checkpoint_every", "checkpoint_freq ckpt_every"},
    {"keep_last", "keep_checkpoints"},
    {"name", "project experiment"},
    {"seed", "manualseed"},
    {"init_from", "weights load_weights init_checkpoint finetune_from"},
    {"ema", "model_ema"},
    {"ema_decay", "model_ema_decay"},
    {"data_image_size", "img_size image_size imgsz crop_size"},
    {"sync_batch_norm", "sync_bn sync_batchnorm"},
    {"train", "train_file train_files train_data training_data train_path train_dataset"},
    {"eval",
     "eval_file eval_data eval_dataset val_file val_data valid_file validation_file "
     "validation_data test_file"},
    {"target", "target_column label_column"},
};

// Names of a type in other programs, separated by blanks.
struct TypeOfOthers {
  const char *name, *others;
};

inline constexpr TypeOfOthers kTypesOfOthers[] = {
    {"bf16", "bfloat16 bf16_mixed"},
    {"fp16", "float16 half 16_mixed 16"},
    {"fp32", "float32 float 32 32_true no full"},
};

}  // namespace lockstep::config
