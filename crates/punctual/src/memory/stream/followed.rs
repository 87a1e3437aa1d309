//! Order of turns among the rings that are followed.

use super::image::Image;
use super::message::MessageHandler;
use super::sealing::Belief;

/// Polls in a row that may find all they want at the publication that was busy last, before the others have their turn.
const BUSY_TURNS: u32 = 16;

/// While all images are looked at, one look of this many is at the image that was busy last.
const LOOKS_BETWEEN: usize = 8;

/// Looks in a row behind overruns, and messages that are refused.
const AGAIN_MAX: usize = 64;

/// Images that a glance looks at beside the one that was busy last.
const GLANCED_AT: usize = 4;

/// The rings that are followed, and whose turn it is.
#[derive(Debug)]
pub(super) struct Followed {
    pub(super) images: Vec<Image>,
    /// The image that had a message last, and how often in a row only that was asked.
    busy: usize,
    busy_turns: u32,
    /// Where the next turn of all images begins.
    next: usize,
    /// A message that was refused ended the last look.
    was_refused: bool,
    pub(super) belief: Belief,
}

impl Followed {
    pub(super) fn new(belief: Belief) -> Self {
        Self { images: Vec::new(), busy: 0, busy_turns: 0, next: 0, was_refused: false, belief }
    }

    /// True if the image that was busy last has news.
    #[inline]
    pub(super) fn has_busy_news(&self) -> bool {
        self.images.get(self.busy).is_some_and(Image::has_news)
    }

    /// True if a full look takes much longer than a glance.
    #[inline]
    pub(super) fn are_many(&self) -> bool {
        self.images.len() > GLANCED_AT
    }

    /// True if the image that was busy last has news, or one of the few from `from` on. Glances one after the other look at others.
    #[inline]
    pub(super) fn glance(&self, from: &mut usize) -> bool {
        if self.images.len() < 2 {
            return self.has_busy_news();
        }
        let few = self.images.iter().skip(*from).take(GLANCED_AT);
        *from = if *from + GLANCED_AT < self.images.len() { *from + GLANCED_AT } else { 0 };
        self.has_busy_news() || few.into_iter().any(Image::has_news)
    }

    /// Forgets the images of which that is so. The order of turns stays.
    pub(super) fn forget(&mut self, mut is_done: impl FnMut(&mut Image) -> bool) {
        let (busy, next) = (self.busy, self.next);
        let mut index = 0;
        self.images.retain_mut(|image| {
            let is_over = is_done(image);
            self.busy -= usize::from(is_over && index < busy);
            self.next -= usize::from(is_over && index < next);
            index += 1;
            !is_over
        });
    }

    /// True if the image that was busy last was asked so often in a row that the others have their turn.
    #[inline]
    pub(super) fn is_turn_of_others(&self) -> bool {
        self.busy_turns >= BUSY_TURNS
    }

    /// Leaves the turn of the others out, if they are few and have no messages. Returns true if it did.
    pub(super) fn skip_others(&mut self) -> bool {
        let mut others = self.images.iter().enumerate().filter(|(index, _)| *index != self.busy);
        let skips = !self.are_many() && others.all(|(_, image)| !image.has_news());
        if skips {
            self.busy_turns = 0;
        }
        skips
    }

    /// Shows messages of the image that was busy last, as long as its frames are direct. Inlined as [`super::Images::poll_busy`] is.
    #[inline(always)]
    pub(super) fn poll_busy(&mut self, limit: usize, handler: &mut impl MessageHandler) -> usize {
        let Some(image) = self.images.get_mut(self.busy) else { return 0 };
        let delivered = image.poll_direct(limit, &mut self.belief, handler);
        self.busy_turns += u32::from(delivered > 0);
        delivered
    }

    /// The same, if they are not.
    pub(super) fn poll_busy_any(&mut self, limit: usize, handler: &mut impl MessageHandler) -> usize {
        let Some(image) = self.images.get_mut(self.busy) else { return 0 };
        let delivered = image.poll_any(limit, &mut self.belief, handler);
        self.busy_turns += u32::from(delivered > 0);
        delivered
    }

    /// Shows messages of all images; looks behind what is no message a bounded number of times. One that is refused ends the turn,
    /// and is the first of the next.
    pub(super) fn poll(&mut self, limit: usize, handler: &mut dyn MessageHandler) -> usize {
        (self.busy_turns, self.was_refused) = (0, false);
        // The busy one's, just now.
        if self.take_refused() {
            self.next = self.busy;
            return 0;
        }
        for _ in 0..AGAIN_MAX {
            self.belief.was_delayed = false;
            let delivered = self.poll_once(limit, handler);
            if delivered > 0 || !self.belief.was_delayed {
                return delivered;
            }
        }
        0
    }

    /// Looks at all images once, and at the one that was busy last after every few others: it need not wait for all of them.
    fn poll_once(&mut self, limit: usize, handler: &mut dyn MessageHandler) -> usize {
        let count = self.images.len();
        let first = self.next.min(count);
        let mut delivered = 0;
        let mut has_only_parts = false;
        for (turn, index) in (first..count).chain(0..first).enumerate() {
            if turn % LOOKS_BETWEEN == LOOKS_BETWEEN - 1 && !has_only_parts {
                let busy = self.busy;
                let (found, is_over) = self.poll_image(busy, limit - delivered, handler);
                // Of a message that is cut as much is taken in one look as may be.
                has_only_parts = found == 0 && self.images.get(busy).is_some_and(Image::has_news);
                delivered += found;
                if is_over {
                    self.next = if self.take_refused() { busy } else { index };
                    break;
                }
            }
            let (found, is_over) = self.poll_image(index, limit - delivered, handler);
            delivered += found;
            if is_over {
                self.next = if self.take_refused() { index } else { index + 1 };
                break;
            }
        }
        delivered
    }

    /// Returns the number of messages delivered, and true if that ends the turn.
    #[inline]
    fn poll_image(&mut self, index: usize, limit: usize, handler: &mut dyn MessageHandler) -> (usize, bool) {
        // Most have nothing.
        let Some(image) = self.images.get_mut(index).filter(|image| image.has_news()) else {
            return (0, false);
        };
        let found = image.poll(limit, &mut self.belief, handler);
        let is_refused = self.belief.was_refused;
        if found > 0 || is_refused {
            self.busy = index;
        }
        (found, found == limit || is_refused)
    }

    fn take_refused(&mut self) -> bool {
        let is_refused = std::mem::take(&mut self.belief.was_refused);
        self.was_refused |= is_refused;
        is_refused
    }

    /// True if a message that was refused ended the last [`Self::poll`].
    pub(super) fn was_refused(&self) -> bool {
        self.was_refused
    }
}
