p='/root/n/l23/build.py'; s=open(p).read()
def r(a,b,n=1):
    global s
    assert s.count(a)==n,(s.count(a),a)
    s=s.replace(a,b)
r('DATASET = ""  # of the provenance line alone: the loops always train on embedded photographs','DATASET = ""  # printed only: the loops always train on embedded photographs')
r('few = config.replace(num_train=256, epochs=1, batch_size=32, progress=False)\n','few = load_config(PROFILE, dataset="photos", first_seed=FIRST_SEED)\nfew = few.replace(num_train=256, num_val=64, epochs=1, batch_size=32, progress=False)\n')
r('The usual reason for it is a pair of networks that compete, such as a GAN: a *discriminator* learns to tell data from inventions, and a *generator* learns to fool it. Each has its own optimizer.','SAM of lesson [16](16_optimizers.ipynb) needs none of this, because its closure runs twice within a step. Two networks that compete do, as in a GAN: a *discriminator* learns to tell data from inventions, and a *generator* to fool it. Each has its own optimizer.')
r('In Lightning, `self.automatic','`self.automatic')
r(''', because the Trainer's arguments for these no longer apply''','')
open(p,'w').write(s)
