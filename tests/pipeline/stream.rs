//! Who sees which sample when.

use crate::cases::pipeline;
use crate::SEED;
use dingo_spmd::data::{share_of, train_test_split, AsdDraws, Batch, Draws, Loader, LoaderOptions, Pipeline};
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;
use tch::Tensor;

fn loader(
    pipeline: &Arc<Pipeline>,
    indices: &Arc<[usize]>,
    batch_size: usize,
    rank: usize,
    world_size: usize,
) -> Loader {
    let options = LoaderOptions {
        batch_size,
        rank,
        world_size,
        shuffle: true,
        seed: SEED,
        threads: 1,
    };
    Loader::new(Arc::clone(pipeline), Arc::clone(indices), options)
}

fn train_indices(pipeline: &Pipeline) -> Arc<[usize]> {
    let train = train_test_split(pipeline.dataset().len(), 0.95).train;
    train[..train.len().min(500)].into()
}

/// All ranks' arrays of a batch, one below the other.
fn joined(parts: &[Batch]) -> Vec<Tensor> {
    let fields = |batch: &Batch| -> Vec<Tensor> {
        std::iter::once(&batch.theta)
            .chain(&batch.context)
            .map(Tensor::shallow_clone)
            .collect()
    };
    let parts: Vec<Vec<Tensor>> = parts.iter().map(fields).collect();
    (0..parts[0].len())
        .map(|f| Tensor::cat(&parts.iter().map(|part| &part[f]).collect::<Vec<_>>(), 0))
        .collect()
}

/// The stream of samples at any number of ranks and threads: the same draws bit for bit, arrays to rounding.
#[test]
fn samples_do_not_depend_on_ranks_or_threads() {
    for case in ["npe", "toy"] {
        let pipeline = pipeline(case);
        let indices = train_indices(&pipeline);
        let (batch_size, epoch) = (48, 3);
        let reference: Vec<Batch> = loader(&pipeline, &indices, batch_size, 0, 1)
            .epoch(epoch, 0)
            .collect::<Result<_, _>>()
            .unwrap();
        for (world_size, threads) in [(1, 4), (2, 1), (3, 1), (4, 1), (3, 4)] {
            let of_rank = |rank| {
                let mut loader = loader(&pipeline, &indices, batch_size, rank, world_size);
                loader.set_threads(threads);
                loader
            };
            let loaders: Vec<Loader> = (0..world_size).map(of_rank).collect();
            let mut epochs: Vec<_> = loaders.iter().map(|loader| loader.epoch(epoch, 0)).collect();
            let mut seen = Vec::new();
            for (number, reference) in reference.iter().enumerate() {
                let shares: Vec<Vec<usize>> = loaders.iter().map(|loader| loader.share(epoch, number)).collect();
                let whole = shares.concat();
                assert_same_draws(&pipeline, &shares, &whole, epoch);
                let parts: Vec<Batch> = epochs
                    .iter_mut()
                    .map(|batches| batches.next().unwrap().unwrap())
                    .collect();
                assert!(parts.iter().all(|part| part.global_count == whole.len()));
                assert!(parts
                    .iter()
                    .zip(&shares)
                    .all(|(part, share)| part.theta.size()[0] as usize == share.len()));
                for (ours, reference) in joined(&parts).iter().zip(joined(std::slice::from_ref(reference))) {
                    let largest = reference.abs().max().double_value(&[]);
                    let error = (ours - &reference).abs().max().double_value(&[]);
                    assert!(
                        error <= 1e-6 * largest,
                        "{case}, {world_size} ranks, {threads} threads: {error}"
                    );
                }
                seen.extend(whole);
            }
            assert!(epochs.iter_mut().all(|batches| batches.next().is_none()));
            seen.sort_unstable();
            let mut expected = indices.to_vec();
            expected.sort_unstable();
            assert_eq!(seen, expected, "each sample once");
        }
    }
}

/// The ranks' draws, put together, are those of the whole batch, noise included.
fn assert_same_draws(pipeline: &Pipeline, shares: &[Vec<usize>], whole: &[usize], epoch: u64) {
    let whole = pipeline.draws(whole, epoch);
    let parts: Vec<Draws> = shares.iter().map(|share| pipeline.draws(share, epoch)).collect();
    for (name, values) in &whole.extrinsic {
        let joined = parts.iter().flat_map(|part| &part.extrinsic[name]).map(|x| x.to_bits());
        assert!(joined.eq(values.iter().map(|x| x.to_bits())), "{name}");
    }
    let asds = |draws: &Draws| match &draws.asds {
        AsdDraws::Indices(indices) => indices.clone(),
        AsdDraws::Spectra(_) => panic!("drawn from the dataset"),
    };
    assert_eq!(parts.iter().flat_map(asds).collect::<Vec<_>>(), asds(&whole));
    let noise = |draws: &Draws| draws.noise.clone().unwrap();
    assert_eq!(parts.iter().flat_map(noise).collect::<Vec<_>>(), noise(&whole));
    let cropping = |draws: &Draws| draws.cropping.clone().unwrap_or_default();
    assert_eq!(parts.iter().flat_map(cropping).collect::<Vec<_>>(), cropping(&whole));
}

#[test]
fn epochs_differ_and_can_be_entered_anywhere() {
    let pipeline = pipeline("toy");
    let indices = train_indices(&pipeline);
    let loader = loader(&pipeline, &indices, 64, 0, 1);
    assert_eq!(loader.num_batches(), indices.len().div_ceil(64));
    assert_ne!(loader.share(0, 0), loader.share(1, 0));
    let whole: Vec<Batch> = loader.epoch(5, 0).collect::<Result<_, _>>().unwrap();
    let entered: Vec<Batch> = loader.epoch(5, 2).collect::<Result<_, _>>().unwrap();
    assert_eq!(
        (whole.len(), entered.len()),
        (loader.num_batches(), loader.num_batches() - 2)
    );
    for (a, b) in whole[2..].iter().zip(&entered) {
        assert!(a.theta.equal(&b.theta) && a.context[0].equal(&b.context[0]));
    }
    assert_eq!(loader.epoch(5, loader.num_batches()).count(), 0);
    // The same samples in another epoch have other draws.
    let (theta_a, _) = pipeline.batch(&[7, 8], 0).unwrap();
    let (theta_b, _) = pipeline.batch(&[7, 8], 1).unwrap();
    assert!(!theta_a.equal(&theta_b));
}

/// Fewer samples than ranks in the last batch: some ranks have none, and their arrays have no rows.
#[test]
fn shares_of_a_tail_may_be_empty() {
    let pipeline = pipeline("toy");
    let indices: Arc<[usize]> = (0..18).collect();
    let mut counts = Vec::new();
    for rank in 0..4 {
        let batches: Vec<Batch> = loader(&pipeline, &indices, 16, rank, 4)
            .epoch(0, 0)
            .collect::<Result<_, _>>()
            .unwrap();
        assert_eq!((batches.len(), batches[0].theta.size()[0]), (2, 4));
        assert_eq!(batches[1].global_count, 2);
        assert_eq!(batches[1].context[0].size()[1..], batches[0].context[0].size()[1..]);
        assert_eq!(batches[1].theta.size()[0], batches[1].context[0].size()[0]);
        counts.push(batches[1].theta.size()[0]);
    }
    assert_eq!(counts.iter().sum::<i64>(), 2);
    assert_eq!(counts, [0, 1, 0, 1]);
    for (count, world_size) in [(0, 1), (0, 3), (7, 3), (512, 5), (2, 4)] {
        let parts: Vec<_> = (0..world_size).map(|rank| share_of(count, rank, world_size)).collect();
        assert!(parts.windows(2).all(|pair| pair[0].end == pair[1].start));
        assert_eq!((parts[0].start, parts[world_size - 1].end), (0, count));
        let (least, most) = (parts.iter().map(Range::len).min(), parts.iter().map(Range::len).max());
        assert!(most.unwrap() - least.unwrap() <= 1);
    }
}

#[test]
fn errors_arrive_and_dropping_stops_the_threads() {
    let pipeline = pipeline("toy");
    let past_the_end: Arc<[usize]> = [0, 1, 2, 3, 1_000_000, 5, 6, 7].into();
    for threads in [1, 3] {
        let options = LoaderOptions {
            batch_size: 2,
            rank: 0,
            world_size: 1,
            shuffle: false,
            seed: SEED,
            threads,
        };
        let loader = Loader::new(Arc::clone(&pipeline), Arc::clone(&past_the_end), options);
        let results: Vec<_> = loader.epoch(0, 0).collect();
        assert_eq!(
            results.iter().map(Result::is_ok).collect::<Vec<_>>(),
            [true, true, false]
        );
        let message = results[2].as_ref().unwrap_err().to_string();
        assert!(message.contains("1000000"), "{message}");
    }
    let many: Arc<[usize]> = (0..pipeline.dataset().len()).cycle().take(1_000_000).collect();
    let mut loader = loader(&pipeline, &many, 64, 0, 1);
    loader.set_threads(4);
    let mut batches = loader.epoch(0, 0);
    batches.next().unwrap().unwrap();
    let start = Instant::now();
    drop(batches);
    assert!(start.elapsed().as_secs_f64() < 2.0, "{:?}", start.elapsed());
}
